# Rows of a table on parallel text: the common part of recipes/compare, multi30k_uk/run and wmt18/run.
# shellcheck shell=bash

require_units() { # check that the UNITS of an update (BATCH tokens or sentences) can be divided among the workers
  ((UNITS % WORKERS == 0)) ||
    fail "UNITS=$UNITS: not divisible by the number of workers. Expected a multiple of $WORKERS."
  [[ -z ${BATCH:-} ]] || ((BATCH % UNITS == 0)) || fail "BATCH=$BATCH: not divisible by UNITS=$UNITS. Expected a multiple of $UNITS."
}

first_machine_only() { # other machines only train, and prepare data if requested. Run everything else on the first machine
  local name
  if ((NODE_RANK == 0)); then return 0; fi
  wanted=${stages_given[*]:-train}
  for name in decode score table; do
    ! wants "$name" || fail "NODE_RANK=$NODE_RANK: the stage $name is for machine 0, which has the checkpoints. Leave NODE_RANK out"
  done
}

# For every row and seed, train, decode and score. The recipe defines the functions
#   train_run FOLDER METHOD SEED, decode_run FOLDER METHOD and score_run FOLDER
# and the settings of the two kinds of stages. `row` is a part of the folder name that distinguishes rows of the same method. It
# may be empty.
row_stages() { # METHOD SEED
  local folder
  folder=$(run_folder "$1${row:-}" "$2")
  stage train "$folder" train "$training_settings" train_run "$folder" "$1" "$2"
  stage decode "$folder" decode "$decoding_settings" decode_run "$folder" "$1"
  stage score "$folder" score "$decoding_settings" score_run "$folder"
}

all_row_stages() {
  local seed method
  for seed in "${seeds[@]}"; do
    for method in "${methods[@]}"; do row_stages "$method" "$seed"; done
  done
}
