# Run every stage only once. Only one recipe at a time can use an output folder.
#
# When a stage has succeeded, the file FOLDER/.NAME.done (a stamp) is written. It contains the settings of the stage, which are
# the values of options. If a recipe is called again and its settings differ from a stamp, the recipe fails before it runs a
# command. A stage that failed or was killed starts again from its beginning, and may then have other settings. A training run
# with checkpoints is an exception. It continues from its last complete checkpoint, and requires the same settings (training.sh).
# shellcheck shell=bash

check_output() { # check the name OUT
  [[ $OUT != *[:,]* ]] || fail "OUT=$OUT: contains a colon or a comma, which separate paths in fairseq. Choose another name."
  # shellcheck disable=SC2016 # literal characters
  [[ $OUT != *'${'* && $OUT != *$'\n'* && $OUT != -* ]] ||
    fail "OUT=${OUT//$'\n'/ }: begins with a dash, or contains \${ or a line break. Choose another name."
}

open_output() { # create and lock OUT. Other machines of the same training run do not lock it, because machines may share OUT
  if [[ -n $DRY_RUN || ($NODE_RANK != 0 && ${wanted:-} == train) ]]; then return 0; fi
  mkdir -p "$OUT"
  if command -v flock >/dev/null; then # commands inherit the lock, so that a command of a killed recipe keeps OUT locked
    exec 9>>"$OUT/.lock"
    if [[ -z $SHARE ]]; then flock -w 5 9 || in_use; else lock_share; fi
  fi
  [[ ! -e $OUT/.recipe || $(<"$OUT/.recipe") == "$recipe" ]] ||
    fail "OUT=$OUT: contains the output of $(<"$OUT/.recipe"), according to $OUT/.recipe. Expected a folder of this recipe. Use another folder."
}

in_use() { fail "$OUT: in use by another recipe, or by a command of a killed recipe. Wait until it ends, or end it."; }

lock_share() { # machines with different values of SHARE may use OUT at the same time, if all of them have the same N in K/N
  local own="$OUT/.lock.share${SHARE/\//of}" other
  flock -s -w 5 9 || in_use
  exec 8>>"$own"
  flock -w 5 8 || in_use
  for other in "$OUT"/.lock.share*; do
    [[ $other == *"of${SHARE#*/}" ]] || flock -n "$other" true ||
      fail "SHARE=$SHARE: another recipe divides the rows of $OUT by another number: ${other##*share}. Expected the same N in K/N for all recipes."
  done
}

choose_stages() { # "STAGE...": set `wanted` to the requested stages, by default all. Call this after all options are declared
  local all=$1 name
  if [[ -n $help_wanted ]]; then
    print_help "$all"
    exit
  fi
  require_known_names
  wanted="${stages_given[*]:-$all}"
  for name in "${stages_given[@]}"; do
    [[ " $all " == *" $name "* ]] || fail "stage '$name': unknown. Expected $all."
  done
}

wants() { [[ " $wanted " == *" $1 "* ]]; }

run_stages() { # FUNCTION: compare the settings of all stages, then run the wanted stages. FUNCTION calls `stage` for every stage
  if [[ -z $DRY_RUN ]]; then
    comparing=1
    "$1"
    comparing=
    require_no_differences
  fi
  run_phases "$1"
}

training_runs=0 training_run=0 # number of training runs of this recipe, and index of the current one, from 1

stage() { # STAGE FOLDER NAME SETTINGS COMMAND...: run a step of a stage, or compare its settings. SETTINGS are names of options
  local belongs_to=$1 folder=$2 name=$3 stamp=$2/.$3.done count=''
  stage_settings=$4
  [[ -z $METHOD_CODE || ! $1 =~ ^(train|decode|score)$ ]] || stage_settings+=" METHOD_CODE"
  shift 4
  if [[ -n $comparing ]]; then
    [[ $belongs_to != train ]] || ! in_share train "$folder" || ((training_runs += 1))
    [[ -z $independent ]] || folder=$stamp
    [[ ! -e $stamp ]] || compare_settings "$belongs_to" "$stamp" "$folder"
  elif ! wants "$belongs_to" || ! in_phase "$belongs_to" || ! in_share "$belongs_to" "$folder"; then
    return 0
  elif [[ -z $DRY_RUN && -e $stamp ]]; then
    [[ $belongs_to != train ]] || ((training_run += 1))
    say "$folder $name: done before"
  elif [[ $phase == decode || $phase == score ]]; then
    start_job "$folder $name" do_stage "$folder" "$stamp" "$@"
  else
    if [[ $belongs_to == train ]]; then
      ((training_run += 1))
      ((training_runs < 2)) || count=" ($training_run of $training_runs)"
    fi
    say "$folder $name$count"
    do_stage "$folder" "$stamp" "$@"
  fi
}

do_stage() { # FOLDER STAMP COMMAND...: run the command, then write the stamp. Before the first stamp, write the name of the recipe
  run mkdir -p "$1"
  "${@:3}"
  [[ -n $DRY_RUN || -e $OUT/.recipe ]] || echo "$recipe" | write_at_once "$OUT/.recipe"
  record_settings "$2"
}

write_at_once() { # FILE: write the standard input to FILE. Machines that share the folder never read an incomplete file
  local part=$1.$HOSTNAME.$BASHPID.part # a unique name, because other processes may write the same file
  cat >"$part" && mv "$part" "$1"
}

need() { # STAGE FILE: fail unless FILE exists. The earlier stage STAGE writes FILE
  [[ -n $DRY_RUN || -e $2 ]] || fail "$2: no such file. Run the stage before: $recipe $1."
}

record_settings() { # FILE: write the settings of the current stage to FILE
  local name setting
  [[ -z $DRY_RUN ]] || return 0
  for name in $stage_settings; do
    find_setting "$name"
    printf '%s\n' "$setting"
  done | write_at_once "$1"
}

# If only the settings of decoding or scoring differ, the training run need not be repeated. The error message then contains a
# command that removes the stamps of all these stages, so that they run again.
stale_stamps='' stale_differences=''
independent='' # 1: no stage needs the result of another stage, so that a stage can be repeated alone
METHOD_CODE='' # checksum of the code of the current row, if the row has methods of the user's own
declare -A option_of=([METHOD_CODE]="code of the method") # name of a setting -> name of the option that determines it, if the names differ

compare_settings() { # STAGE FILE REMOVE: compare the stamp FILE with the current settings
  # If the settings differ, collect the stamp of decode or score. Fail for other stages.
  local differences
  find_differences "$2"
  if [[ -z $differences ]]; then return 0; fi
  [[ $1 == decode || $1 == score ]] || refuse_settings "$3$([[ $1 == train ]] || trained_models)"
  stale_differences=${stale_differences:-$differences}
  [[ " $stale_stamps " == *" ${2##*/} "* ]] || stale_stamps+="${stale_stamps:+ }${2##*/}"
}

require_no_differences() { # fail if compare_settings has collected stamps of decoding or scoring
  [[ -n $stale_stamps ]] || return 0
  fail "${runs:-$OUT}: decoded with other settings ($stale_differences). Use another folder (OUT). To decode again without" \
    "training again: find -H $(printf %q "${runs:-$OUT}") '(' -name ${stale_stamps// / -o -name } ')' -delete"
}

require_settings() { # FILE FOLDER: fail if FILE contains other settings than the current stage
  # FILE was written at the start of a training run.
  local differences
  find_differences "$1"
  [[ -z $differences ]] || refuse_settings "$2"
}

trained_models() { # print a text if trained models in OUT depend on a setting that differs
  local name
  for name in $different_settings; do
    [[ " ${training_settings:-} " == *" $name "* ]] || continue
    [[ -z $(find -H "${runs:-$OUT}" -name .train.begun -print -quit) ]] || echo " and all trained models in ${runs:-$OUT}"
    return
  done
}

refuse_settings() { # REMOVE: fail because of `differences`. If the user removes the folder or file REMOVE, the stage runs again
  fail "$1: created with other settings ($differences). Use another folder (OUT), or remove $1."
}

find_differences() { # FILE: set `differences` to a text with the settings in FILE that differ from the current stage
  # Also set `different_settings` to the names of these settings.
  local file=$1 name setting recorded all
  differences= different_settings=
  [[ -s $file ]] || file=$OUT/settings # earlier versions wrote the settings of all stages to this file
  [[ -e $file ]] || return 0
  mapfile -t all <"$file"
  for name in $stage_settings; do
    for recorded in "${all[@]}" ''; do [[ $recorded != "$name="* ]] || break; done
    [[ -n $recorded ]] || continue
    if [[ $name == INPUTS ]]; then
      [[ -n $differences ]] || require_inputs "${recorded#*=}"
      continue
    fi
    find_setting "$name"
    if [[ $recorded == "$setting" ]]; then continue; fi
    differences+="${differences:+; }${option_of[$name]-$name}=${recorded#*=}, now ${!name}"
    different_settings+=" $name"
  done
}

find_setting() { setting="$1=${!1//$'\n'/ }"; } # NAME: set `setting` to NAME=VALUE on one line
