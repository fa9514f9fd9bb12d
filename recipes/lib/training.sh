# Train, or resume from the last complete checkpoint.
# shellcheck shell=bash

train() { # FOLDER --max-update|--max-epoch NUMBER OPTION...: train. The user's TRAIN_OPTIONS are added after OPTION...
  local folder=$1 limit=$2 number=$3 reached=0 more
  shift 3
  training_limit=$limit training_number=$number may_stop_early=''
  [[ " $* $TRAIN_OPTIONS " != *" --patience"* ]] || may_stop_early='at most '
  [[ " $TRAIN_OPTIONS " != *" --max-"@(update|epoch)* ]] || training_limit=unknown
  need prepare "$data/.preprocess.done"
  read -rd '' -ra more <<<"$TRAIN_OPTIONS" || true
  if [[ -z $DRY_RUN ]] && ((NODE_RANK == 0)); then
    if has_checkpoint "$folder"; then
      require_settings "$folder/.train.begun" "$folder"
      reached=$("$bin/python" -m fairseq_posenc.host.checkpoints.repair "$folder" 2>>"$folder/train.log") ||
        fail "$folder: the checkpoints cannot be repaired. $(tail -n 1 "$folder/train.log")"
      say "  resuming after $reached updates"
    else
      record_settings "$folder/.train.begun"
    fi
  fi
  # Do not start a completed training run again, because fairseq-train would run one more update.
  if [[ $limit == --max-update ]] && ((reached >= number)); then return 0; fi
  launch "$folder/train.log" "$@" "$limit" "$number" "${more[@]}" --save-dir "$folder" --tensorboard-logdir "$folder/tensorboard" \
    --user-dir "$user_dir" --no-progress-bar --log-format simple
}

has_checkpoint() { # FOLDER. The name of the folder may contain characters such as [
  local file
  for file in "$1"/checkpoint*.pt; do if [[ -e $file ]]; then return 0; fi; done
  return 1
}

require_checkpoints() { # fail if a training run of UPDATES updates writes fewer than AVERAGE checkpoints
  # If an update is the last update of an epoch, fairseq writes no checkpoint for this update. The check therefore requires enough
  # updates for one additional checkpoint.
  ((AVERAGE == 0 || UPDATES >= (AVERAGE + 1) * SAVE_UPDATES)) ||
    fail "AVERAGE=$AVERAGE: too large for UPDATES=$UPDATES with a checkpoint every SAVE_UPDATES=$SAVE_UPDATES updates. Expected at most" \
      "$((UPDATES / SAVE_UPDATES - 1)). Reduce SAVE_UPDATES."
}

# how the current training run ends: --max-update or --max-epoch, and its number. "at most " if the run may stop earlier
training_limit=unknown training_number=0 may_stop_early=''

progress() { # [FILE]: read fairseq's log. Print progress, warnings and errors. Write the reasons of a failure to FILE
  local line loss speed updates total wall first='' begin numbers='loss=([^ ,]+).*wps=([^ ,]+).*num_updates=([^ ,]+)'
  while IFS= read -r line; do
    if [[ $line =~ $numbers ]]; then # fairseq writes a million as 1e+06
      loss=${BASH_REMATCH[1]}
      LC_ALL=C printf -v speed %.0f "${BASH_REMATCH[2]}"
      LC_ALL=C printf -v updates %.0f "${BASH_REMATCH[3]}"
      total=''
      if [[ $training_limit == --max-update ]]; then
        total=$training_number
      elif [[ $training_limit == --max-epoch && $line =~ epoch\ [0-9]+:\ +[0-9]+\ /\ ([0-9]+)\  ]]; then
        total=$((training_number * BASH_REMATCH[1]))
      fi
      wall=''
      [[ ! $line =~ ,\ wall=([0-9]+) ]] || wall=${BASH_REMATCH[1]}
      if [[ -z $first ]]; then first=$updates begin=$wall; fi
      line="  update $updates${total:+ of $total}, loss $loss, $speed tokens/s"
      [[ -z $total || -z $wall || -z $begin ]] || ((updates <= first || updates > total)) ||
        line+=", $may_stop_early$(duration $(((total - updates) * (wall - begin) / (updates - first)))) left"
      say "$line"
    elif [[ $line == *" | WARNING | "* || $line == *" | ERROR | "* ]]; then
      echo "$line"
    elif [[ -n ${1-} && ($line == "fairseq_posenc: "* || $line == "OSError: "*) ]]; then
      echo "$line" >>"$1" # not only in the log, because the log may be on a full disk
    fi
  done
}

duration() { # SECONDS: print a duration, rounded up
  if (($1 < 60)); then
    echo "$1 s"
  elif (($1 < 3600)); then
    echo "$((($1 + 59) / 60)) min"
  else
    echo "$(($1 / 3600)) h $(($1 % 3600 / 60)) min"
  fi
}
