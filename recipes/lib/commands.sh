# Run commands. With DRY_RUN=1, only print them. Commands run in the background while the shell waits for them, so that the shell
# can handle a signal at once and end the command.
# shellcheck shell=bash

recipe=$(CDPATH='' cd "${OLDPWD:-.}" && CDPATH='' cd "$(dirname "$0")" && pwd)/${0##*/}
# `recipe` is the name of the recipe in messages, such as recipes/studies/pnat. The current folder is the checkout.
recipe=${recipe#"$PWD/"}
DRY_RUN=${DRY_RUN:-} # used until the recipe has declared the option
export PYTHONUTF8=1 # outputs are UTF-8, also if the locale has another encoding

say() {
  if [[ -n $DRY_RUN ]]; then echo "# $*"; else printf '[%2d:%02d] %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$*"; fi
}
fail() {
  echo "$recipe: $*" >&2
  exit 1
}

find_tools() { # set `bin` to POSENC_BIN or .venv/bin, and `user_dir` to the package in the checkout or the installed package
  bin=${POSENC_BIN:-.venv/bin}
  [[ -n ${POSENC_BIN:-} ]] || run recipes/setup
  [[ -n $DRY_RUN || -x $bin/fairseq-train ]] || fail "POSENC_BIN=$bin: no fairseq-train in this folder. Expected the bin folder of an installation. Correct or remove POSENC_BIN."
  user_dir=fairseq_posenc
  [[ -d $user_dir ]] || user_dir=$("$bin/python" -m fairseq_posenc.cli path) || fail "POSENC_BIN=$bin: fairseq_posenc is not installed. Install it there, or run recipes/setup."
}

posenc() { LOGLEVEL=${LOGLEVEL:-WARNING} run "$bin/python" -m fairseq_posenc.cli "$@"; } # LOGLEVEL hides fairseq's log at import

run() {
  if [[ -n $DRY_RUN ]]; then show "$@"; else
    "$@" &
    wait $!
  fi
}

run_to() { # FILE COMMAND...: write the output to FILE. FILE is created only if the command succeeds
  local file=$1
  shift
  if [[ -n $DRY_RUN ]]; then show "$@" ">" "$file"; else
    PYTHONUNBUFFERED=1 "$@" >"$file.part" 2>&1 & # unbuffered, so that log messages and printed lines are in order
    wait $! || { tail -n 5 "$file.part" >&2 && fail "${1##*/} failed. The last lines of its output are above, the complete output is in $file.part."; }
    mv "$file.part" "$file"
  fi
}

show() {
  local word
  for word in "$@"; do
    case $word in ">" | ">>") printf '%s ' "$word" ;; *) printf '%q ' "$word" ;; esac
  done
  echo
}

stop() { # STATUS
  trap '' INT TERM HUP
  # shellcheck disable=SC2046 # a list of process ids
  kill $(jobs -p) 2>/dev/null || true
  wait
  say "stopped; the same command continues from here"
  exit "$1"
}
trap 'stop 130' INT
trap 'stop 143' TERM
trap 'stop 129' HUP
