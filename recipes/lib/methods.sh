# METHODS contains the rows of a table. A row is a spec for encoder and decoder, or encoder=SPEC;cross=SPEC for the named sites,
# or an architecture posenc_NAME, which may be followed by options of the method.
# shellcheck shell=bash

read_methods() { # set `methods` to the list of rows in METHODS. METHODS may also be a file with rows and # comments
  local line words
  methods=()
  if [[ -f $METHODS ]]; then
    while IFS= read -r line || [[ -n $line ]]; do
      line=${line%$'\r'} line=${line#$'\xef\xbb\xbf'} # a file from Windows, with a byte order mark
      read -ra words <<<"${line%%#*}"
      methods+=("${words[@]}")
    done <"$METHODS"
  else
    read -rd '' -ra methods <<<"$METHODS" || true
  fi
  ((${#methods[@]})) || fail "METHODS=$METHODS: no method. Expected one or more specs. For all methods, run posenc list."
  require_rows METHODS "${methods[@]}"
}

require_rows() { # OPTION ROW...: fail if a row is posenc_pnat, or the name of a file, which posenc check would read as code of a method
  local row
  for row in "${@:2}"; do
    [[ ${row%%[:=]*} != */* && $row != *.py && ! -f $row ]] ||
      fail "$1: $row is not a row of a table. Expected specs or architectures, or for METHODS the name of one existing file that" \
        "contains them. For methods of your own, set POSENC_METHODS=FILE.py and use the names of the methods."
    [[ $row != posenc_pnat ]] ||
      fail "$1: posenc_pnat is a non-autoregressive model, which needs another task. Remove it, and use recipes/studies/pnat."
  done
}

# Kinds of side files that the recipe can create (heads, relations, edges, order). posenc check fails for a method that reads
# another kind.
side_files=()
check_options=() # additional options of posenc check
declare -A side_of=() # method -> kinds of side files that it reads, or `none`
declare -A code_of=() # method of the user's own -> checksum of its files
declare -A specs_of=() # posenc_NAME:OPTIONS -> `SITE SPEC` for every site, separated by tabs

check_methods() { # check all methods with posenc check. Set `methods` to the checked methods, without the word `all`
  # posenc check replaces `all` by the architectures of methods that can use the data, and by their controls.
  local checked method rest
  [[ -z $DRY_RUN || -x $bin/python || " ${methods[*]} " == *" all "* ]] || return 0
  [[ -x $bin/python ]] || fail "METHODS=${methods[*]}: no installation found to check the methods. Run recipes/setup first."
  [[ -z $DRY_RUN ]] || check_options+=(--cards-only)
  checked=$(LOGLEVEL=WARNING "$bin/python" -m fairseq_posenc.cli check --size "$SIZE" --length "$LENGTH" \
    "${check_options[@]}" --side-files "${side_files[@]}" -- "${methods[@]}") || exit 1
  methods=()
  while IFS=$'\t' read -r method rest; do
    methods+=("$method")
    [[ $rest != *$'\tcode '* ]] || code_of[$method]=${rest##*$'\tcode '} rest=${rest%$'\tcode '*}
    [[ $rest != *$'\t'"side "* ]] || side_of[$method]=${rest##*$'\t'side }
    [[ $method != posenc_*:* ]] || specs_of[$method]=${rest%$'\t'side *}
  done <<<"$checked"
}

read_side_files() { # [METHOD...]: whether at least one of these methods reads side files. Without arguments, test all methods
  local method
  for method in "${@:-"${methods[@]}"}"; do
    [[ ${side_of[$method]:-none} == none ]] || return 0
  done
  return 1
}

control_of() { # METHOD: set `control` to the additional options of fairseq-train and fairseq-generate if METHOD ends with @random
  control=()
  [[ $1 != *@random ]] || control=(--random-structure 1)
}

model_of() { # METHOD: set `model` to the options of fairseq-train for this row
  local size=_$SIZE method=${1%@random} specs=${specs_of[$1]-} site spec sites
  [[ $SIZE != base ]] || size=
  if [[ $method == posenc_* ]]; then
    model=(--arch "${method%%:*}$size")
    while read -r site spec; do
      [[ -z $site ]] || model+=("--$site-position" "$spec")
    done <<<"${specs//$'\t'/$'\n'}"
  elif [[ $method =~ ^(encoder|decoder|cross)= ]]; then
    IFS=';' read -ra sites <<<"$method"
    model=(--arch "posenc_transformer$size" --encoder-position none --decoder-position none)
    for site in "${sites[@]}"; do model+=("--${site%%=*}-position" "${site#*=}"); done # a later option replaces an earlier one
  else
    model=(--arch "posenc_transformer$size" --encoder-position "$method" --decoder-position "$method")
  fi
  control_of "$1"
  model+=(--task posenc_translation "${control[@]}")
}

run_folder() { # METHOD SEED: print the folder of this training run
  echo "${runs:-$OUT}/${1//[^A-Za-z0-9.,=+_-]/_}/seed$2" # fairseq would split a path at a colon
}
