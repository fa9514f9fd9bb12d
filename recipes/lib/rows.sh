# Decode or score several rows of a table at the same time (PARALLEL), and divide the rows among machines (SHARE).
# shellcheck shell=bash

phase=all
: "${PARALLEL:=1}" "${SHARE:=}" # defaults for recipes that do not declare these options

row_options() { # declare the options of this file
  option PARALLEL whole:1 1 "number of rows (quickstart: number of test sets) that are decoded or scored at the same time"
  option SHARE text "" "K/N: train, decode and score every N-th training run, starting with run K. Each seed of a row is a training run. N machines divide the runs of a table in this way"
  [[ -z $SHARE ]] || { [[ $SHARE =~ ^[1-9][0-9]{0,3}/[1-9][0-9]{0,3}$ ]] && ((${SHARE%/*} <= ${SHARE#*/})); } ||
    fail "SHARE=${SHARE//$'\n'/ }: not allowed. Expected K/N with K from 1 to N, such as 1/2 on one machine and 2/2 on another."
}

leave_rows_to_others() { # with SHARE, select train, decode and score by default, and fail for stages that are for all rows
  local name
  [[ -n $SHARE ]] || return 0
  [[ ${stages_given[*]} ]] || ((NODE_RANK)) || wanted="train decode score" # other machines than machine 0 only train
  for name in $wanted; do
    case $name in
      train | decode | score) ;;
      *) fail "SHARE=$SHARE: the stage $name is for all rows. Run it without SHARE" ;;
    esac
  done
}

declare -A row_numbers=() # folder of a row -> index, from 0

in_share() { # STAGE FOLDER: whether the row in FOLDER belongs to the share of this machine
  [[ -n $SHARE && $1 =~ ^(train|decode|score)$ ]] || return 0
  [[ -n ${row_numbers[$2]-} ]] || row_numbers[$2]=${#row_numbers[@]}
  ((row_numbers[$2] % ${SHARE#*/} == ${SHARE%/*} - 1))
}

in_phase() { # STAGE: whether the stage runs in the current phase
  case $phase in
    all) ;;
    others) [[ $1 != decode && $1 != score ]] ;;
    *) [[ $1 == "$phase" ]] ;;
  esac
}

run_phases() { # FUNCTION: run all stages. FUNCTION calls `stage` for every stage
  phase=all
  if ((PARALLEL == 1)) || [[ -n $DRY_RUN ]]; then
    "$1"
    return
  fi
  for phase in others decode score; do # first all other stages, then decoding of all rows, then scoring
    "$1"
    finish_jobs
  done
}

job_processes=() job_names=() failed_jobs=() job_outputs=''

start_job() { # NAME COMMAND...: wait until fewer than PARALLEL jobs run, then run a command in a subshell in the background
  local name=$1 number=${#job_names[@]}
  shift
  await_jobs $((PARALLEL - 1))
  [[ -n $job_outputs ]] || job_outputs=$(mktemp -d)
  job_names+=("$name")
  (
    # shellcheck disable=SC2046 # a list of process ids
    trap 'kill $(jobs -p) 2>/dev/null; exit 143' INT TERM HUP
    set -e
    "$@"
  ) >"$job_outputs/$number" 2>&1 &
  job_processes[number]=$!
}

collect_jobs() { # print the output of jobs that have ended
  local number
  for number in "${!job_processes[@]}"; do
    if kill -0 "${job_processes[number]}" 2>/dev/null; then continue; fi
    say "${job_names[number]}"
    wait "${job_processes[number]}" || failed_jobs+=("${job_names[number]}")
    cat "$job_outputs/$number"
    unset "job_processes[number]"
  done
}

await_jobs() { # NUMBER: wait until no more than NUMBER jobs run
  collect_jobs
  while ((${#job_processes[@]} > $1)); do
    sleep 0.2
    collect_jobs
  done
}

finish_jobs() { # wait for all jobs of a phase, then fail if a job has failed
  await_jobs 0
  [[ -z $job_outputs ]] || rm -r "$job_outputs"
  job_outputs=''
  ((${#failed_jobs[@]} == 0)) || fail "${#failed_jobs[@]} of ${#job_names[@]} failed, for the reasons above: $(printf '%s, ' "${failed_jobs[@]}" | sed 's/, $//')"
  job_names=()
}
