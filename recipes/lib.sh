# Shared by the recipes: an output folder of one set of settings, stages that are done once, commands that can be shown instead of run.
# A recipe runs in the checkout and begins with: set -euo pipefail; source recipes/lib.sh; find_tools; open_output FOLDER SETTING...
# shellcheck shell=bash

DRY_RUN=${DRY_RUN:-}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}           # small models gain nothing from more threads, and
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-PASSIVE}     # threads that spin while they wait are 10 times slower on busy cores

say() {
  if [[ -n $DRY_RUN ]]; then echo "# $*"; else printf '[%2d:%02d] %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$*"; fi
}
fail() {
  echo "${0##*/}: $*" >&2
  exit 1
}

find_tools() { # sets $bin, which is POSENC_BIN, or .venv/bin, which recipes/setup fills, and $trainer
  bin=${POSENC_BIN:-.venv/bin}
  [[ -n ${POSENC_BIN:-} ]] || run recipes/setup
  trainer=("$bin/python" fairseq_posenc/report/memory.py "$bin/fairseq-train") # says how much memory it took
  [[ -n $DRY_RUN || -x $bin/fairseq-train ]] || fail "POSENC_BIN=$bin holds no fairseq-train; name the bin folder of an installation, or leave it out"
}

posenc() { LOGLEVEL=${LOGLEVEL:-WARNING} run "$bin/python" -m fairseq_posenc.cli "$@"; } # without what fairseq logs on import

# --- commands: shown under DRY_RUN=1, else run. Behind `wait`, so that what stops the recipe stops its command too -----

run() {
  if [[ -n $DRY_RUN ]]; then show "$@"; else
    "$@" &
    wait $!
  fi
}

run_to() { # FILE COMMAND...: all that it prints goes into FILE, which is there when it has ended well
  local file=$1
  shift
  if [[ -n $DRY_RUN ]]; then show "$@" ">" "$file"; else
    PYTHONUNBUFFERED=1 "$@" >"$file.part" 2>&1 & # unbuffered: log and output in their order, no line within another
    wait $! || { tail -n 5 "$file.part" >&2 && fail "${1##*/} failed; its last lines are above, all of them in $file.part"; }
    mv "$file.part" "$file"
  fi
}

run_logged() { # FILE COMMAND...: all that fairseq-train prints is appended to FILE, its progress goes onto the screen
  local file=$1
  shift
  if [[ -n $DRY_RUN ]]; then show "$@" ">>" "$file"; else
    "$@" > >(tee -a "$file" | progress) 2>&1 &
    wait $! || { tail -n 5 "$file" >&2 && fail "training failed; its last lines are above, all of them in $file"; }
  fi
}

run_workers() { # FILE COUNT COMMAND...: as run_logged, of processes that train together; where one fails, the others end too
  local file=$1 count=$2 rank failed='' workers=()
  shift 2
  for ((rank = count - 1; rank >= 0; rank--)); do
    if [[ -n $DRY_RUN ]]; then
      show "$@" --distributed-rank "$rank" ">>" "$file"
    elif ((rank)); then
      "$@" --distributed-rank "$rank" >>"$file.rank$rank" 2>&1 &
      workers[rank]=$!
    else
      "$@" --distributed-rank 0 > >(tee -a "$file" | progress) 2>&1 &
      workers[0]=$!
    fi
  done
  while ((${#workers[@]})); do
    for rank in "${!workers[@]}"; do
      if kill -0 "${workers[rank]}" 2>/dev/null; then continue; fi
      wait "${workers[rank]}" || failed+=" $rank"
      unset "workers[rank]"
    done
    if [[ -n $failed ]]; then
      kill "${workers[@]}" 2>/dev/null || true
      wait
      [[ $failed == *" 0"* ]] || tail -n 5 "$file.rank${failed##* }" >&2
      fail "training failed on worker$failed; all that the workers printed is in $file and $file.rank*"
    fi
    sleep 0.5
  done
}

show() {
  local word
  for word in "$@"; do
    case $word in ">" | ">>") printf '%s ' "$word" ;; *) printf '%q ' "$word" ;; esac
  done
  echo
}

progress() { # of fairseq's log: the training lines in short, and warnings
  local line numbers='loss=([0-9.]+).*wps=([0-9.]+).*num_updates=([0-9]+)'
  while IFS= read -r line; do
    if [[ $line =~ $numbers ]]; then
      say "  update ${BASH_REMATCH[3]}, loss ${BASH_REMATCH[1]}, ${BASH_REMATCH[2]%.*} tokens/s"
    elif [[ $line == *" | WARNING | "* || $line == *" | ERROR | "* ]]; then
      echo "$line"
    fi
  done
}

stop() { # STATUS
  trap '' INT TERM HUP
  # shellcheck disable=SC2046 # a list of process ids
  kill $(jobs -p) 2>/dev/null || true
  wait
  say "stopped; the same command goes on from here"
  exit "$1"
}
trap 'stop 130' INT
trap 'stop 143' TERM
trap 'stop 129' HUP

# --- the output folder -------------------------------------------------------------------------------------------------

open_output() { # FOLDER NAME...: the folder takes results of one set of values of these variables, from one recipe at a time
  local folder=$1 name changes settings=
  shift
  [[ $folder != *:* ]] || fail "OUT=$folder holds a colon, which parts paths for fairseq"
  if [[ -n $DRY_RUN ]]; then return; fi
  for name in "$@"; do settings+="$name=${!name}"$'\n'; done
  mkdir -p "$folder"
  if command -v flock >/dev/null; then # held by every command started here, so also by one that outlives a killed recipe
    exec 9>>"$folder/.lock"
    flock -w 5 9 || fail "$folder is in use, by another recipe or by a command that a killed one has left"
  fi
  if [[ ! -e $folder/settings ]]; then
    printf '%s' "$settings" >"$folder/settings.part"
    mv "$folder/settings.part" "$folder/settings"
  elif ! changes=$(diff "$folder/settings" <(printf '%s' "$settings")); then
    fail "$folder was made with other settings; give OUT another folder, or remove it:"$'\n'"$(grep '^[<>]' <<<"$changes")"
  fi
}

stage() { # FOLDER NAME COMMAND...: runs the command unless it has ended well before; removing the folder undoes its stages
  local folder=$1 name=$2 stamp=$1/.$2.done
  shift 2
  if [[ -z $DRY_RUN && -e $stamp ]]; then
    say "$folder $name: done before"
  else
    say "$folder $name"
    run mkdir -p "$folder"
    "$@"
    [[ -n $DRY_RUN ]] || touch "$stamp"
  fi
}

# --- training and decoding ---------------------------------------------------------------------------------------------

train() { # FOLDER UPDATES OPTION...: fairseq-train up to this number of updates, from where an interrupted one has come to
  local folder=$1 updates=$2 reached=0
  shift 2
  if [[ -z $DRY_RUN ]] && compgen -G "$folder/checkpoint*.pt" >/dev/null; then
    reached=$("$bin/python" -m fairseq_posenc.report.checkpoint "$folder" 2>>"$folder/train.log")
    say "  $reached of $updates updates are there"
  fi
  ((reached >= updates)) || run_logged "$folder/train.log" "${trainer[@]}" "$@" \
    --max-update "$updates" --save-dir "$folder" --user-dir fairseq_posenc --no-progress-bar --log-format simple
}

decode() { # FOLDER PART SUBSET OPTION...: FOLDER/PART.out, with every sentence: by itself fairseq drops the rest of a division by 8
  local folder=$1 part=$2 subset=$3
  shift 3
  run_to "$folder/$part.out" "$bin/fairseq-generate" "$@" \
    --path "$folder/checkpoint_last.pt" --gen-subset "$subset" --user-dir fairseq_posenc --required-batch-size-multiple 1
}
