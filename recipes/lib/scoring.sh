# Score decoded test sets, and create the table of all rows.
# shellcheck shell=bash

bleu_tokens=''   # sacreBLEU's tokenizer, if a recipe does not use the default
score_options=() # additional options of posenc score
row_settings=()  # fairseq options that differ between rows, and are part of the names of rows

score() { # FOLDER PART...: score FOLDER/PART.out with TEXT/PART.TARGET. PART=REFERENCE sets another or an additional reference
  local folder=$1 part parts=(${bleu_tokens:+--tokenize "$bleu_tokens"} "${score_options[@]}")
  shift
  for part in "$@"; do
    [[ $part == *=* ]] || part+="=$text/$part.$TARGET"
    need decode "$folder/${part%%=*}.out"
    parts+=("$part")
  done
  posenc score "$folder" "${parts[@]}"
}

table() { # OPTION...: create the table with posenc report. Set `table_rows` to the option --methods with the rows in order
  local method variance=()
  say "${runs:-$OUT}: the table"
  table_rows=()
  for method in "${methods[@]}"; do # skip architectures, because the row of an architecture has another name
    [[ $method == posenc_* || $method == *@random ]] || table_rows+=("$method")
  done
  ((${#row_settings[@]} == 0)) || table_rows=() # names of rows then also contain settings
  ((${#table_rows[@]} == 0)) || table_rows=(--methods "${table_rows[@]}")
  [[ ! -d results/chance ]] || variance=(--seed-variance results/chance) # runs of recipes/studies/chance
  posenc report "${runs:-$OUT}" "${variance[@]}" "${table_rows[@]}" "$@"
}
