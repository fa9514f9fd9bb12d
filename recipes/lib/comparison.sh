# Functions that recipes/compare, multi30k_uk/run and wmt18/run share: they train, decode and score the rows of a table.
# shellcheck shell=bash

require_units() { # check that UNITS is divisible by the number of workers, and BATCH by UNITS
  ((UNITS % WORKERS == 0)) ||
    fail "UNITS=$UNITS: not divisible by the number of workers. Expected a multiple of $WORKERS."
  [[ -z ${BATCH:-} ]] || ((BATCH % UNITS == 0)) || fail "BATCH=$BATCH: not divisible by UNITS=$UNITS. Expected a multiple of $UNITS."
}

first_machine_only() { # on all machines but machine 0: select the stage train by default. Fail for decode, score and table
  local name
  if ((NODE_RANK == 0)); then return 0; fi
  wanted=${stages_given[*]:-train}
  for name in decode score table; do
    ! wants "$name" || fail "NODE_RANK=$NODE_RANK: the stage $name is for machine 0, which has the checkpoints. Leave NODE_RANK out"
  done
}

# Train, decode and score every row with every seed. The recipe defines the functions
#   train_run FOLDER METHOD SEED, decode_run FOLDER METHOD and score_run FOLDER
# and the variables training_settings and decoding_settings, which contain names of options. The variable `row` may contain a
# suffix of the folder name, which distinguishes rows of the same method.
row_stages() { # METHOD SEED
  local folder
  METHOD_CODE=${code_of[$1]-} folder=$(run_folder "$1${row:-}" "$2")
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
