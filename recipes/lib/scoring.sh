# Scoring of decoded test parts, and the table of all rows.
# shellcheck shell=bash

score() { # FOLDER PART...: against TEXT/PART.TARGET; PART=REFERENCE names another reference; TOKENIZE, the tokens of BLEU
  local folder=$1 part parts=()
  shift
  [[ -z ${TOKENIZE:-} ]] || parts=(--tokenize "$TOKENIZE")
  for part in "$@"; do
    [[ $part == *=* ]] || part+="=$text/$part.$TARGET"
    need decode "$folder/${part%%=*}.out"
    parts+=("$part")
  done
  posenc score "$folder" "${parts[@]}"
}

table() { # OPTION...
  local method rows=()
  say "${runs:-$OUT}: the table"
  for method in "${methods[@]}"; do # an architecture may have other methods in encoder and decoder; the table names them
    [[ $method == posenc_* || $method == *@random ]] || rows+=("$method")
  done
  ((${#rows[@]} == 0)) || rows=(--methods "${rows[@]}")
  posenc report "${runs:-$OUT}" "${rows[@]}" "$@"
}
