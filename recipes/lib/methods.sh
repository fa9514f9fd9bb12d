# The rows of a table: methods, which differ in their spec alone.
# shellcheck shell=bash

read_methods() { # sets `methods` to what METHODS lists, or the file that it names: one spec a line, # begins a comment
  local line words
  methods=()
  if [[ -f $METHODS ]]; then
    while IFS= read -r line || [[ -n $line ]]; do
      read -ra words <<<"${line%%#*}"
      methods+=("${words[@]}")
    done <"$METHODS"
  else
    read -rd '' -ra methods <<<"$METHODS" || true
  fi
  ((${#methods[@]})) || fail "METHODS=$METHODS names no method; posenc list shows them"
}

check_methods() { # all of them, before anything is made; `all` becomes the architectures of all methods, also under DRY_RUN
  local checked
  [[ -z $DRY_RUN || " ${methods[*]} " == *" all "* ]] || return 0
  [[ -x $bin/python ]] || fail "METHODS=${methods[*]} needs an installation to look methods up; run recipes/setup"
  checked=$(LOGLEVEL=WARNING "$bin/python" -m fairseq_posenc.cli check --size "$SIZE" --length "$LENGTH" -- "${methods[@]}") || exit 1
  mapfile -t methods < <(cut -f 1 <<<"$checked")
}

model_of() { # METHOD: sets `model` to its options for fairseq-train; a spec stands for encoder and decoder
  local size=_$SIZE
  [[ $SIZE != base ]] || size=
  if [[ $1 == posenc_* ]]; then
    model=(--arch "$1$size")
  else
    model=(--arch "posenc_transformer$size" --encoder-position "$1" --decoder-position "$1")
  fi
}

run_folder() { # METHOD SEED: prints the folder of this training
  echo "${runs:-$OUT}/${1//[^A-Za-z0-9.,=+_-]/_}/seed$2" # a colon would separate paths for fairseq
}
