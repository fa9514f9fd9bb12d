# Score decoded test parts, and create the table of all rows.
# shellcheck shell=bash

bleu_tokens=''   # sacreBLEU's tokenizer, if a recipe does not use the default
score_options=() # additional options of posenc score
row_settings=()  # settings of fairseq that differ between rows and are part of their names

score() { # FOLDER PART...: score against TEXT/PART.TARGET. PART=REFERENCE names another or an additional reference
  local folder=$1 part parts=(${bleu_tokens:+--tokenize "$bleu_tokens"} "${score_options[@]}")
  shift
  for part in "$@"; do
    [[ $part == *=* ]] || part+="=$text/$part.$TARGET"
    need decode "$folder/${part%%=*}.out"
    parts+=("$part")
  done
  posenc score "$folder" "${parts[@]}"
}

table() { # OPTION...: create the table. Set `table_rows` to the rows in order
  local method variance=()
  say "${runs:-$OUT}: the table"
  table_rows=()
  for method in "${methods[@]}"; do # an architecture may have other methods in encoder and decoder; the table names them
    [[ $method == posenc_* || $method == *@random ]] || table_rows+=("$method")
  done
  ((${#row_settings[@]} == 0)) || table_rows=() # a spec without settings is not the name of a row
  ((${#table_rows[@]} == 0)) || table_rows=(--methods "${table_rows[@]}")
  [[ ! -d results/chance ]] || variance=(--seed-variance results/chance) # runs of recipes/studies/chance
  posenc report "${runs:-$OUT}" "${variance[@]}" "${table_rows[@]}" "$@"
}
