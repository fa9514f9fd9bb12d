# Decode one test set. A recipe may have the option DECODE_TOKENS, the maximum number of source subwords in a batch.
# shellcheck shell=bash

# CHECKPOINT may have the suffix :FILE. FILE is the checkpoint of a model that rescores translations.
decode() { # FOLDER CHECKPOINT PART SUBSET OPTION...: write FOLDER/PART.out. SUBSET is the name of the test set in fairseq
  local folder=$1 checkpoint=$2 part=$3 subset=$4 device=(--cpu) join
  shift 4
  need train "$folder/.train.done" # the training run must be completed, so that all rows have the same number of updates
  [[ -n $DRY_RUN || -e $folder/${checkpoint%%:*} ]] || fail "$folder/${checkpoint%%:*}: no such file. Expected a checkpoint of this run."
  join=$(joining)
  ((GPUS == 0)) || device=(--distributed-world-size 1) # otherwise, fairseq divides the sentences among all visible GPUs
  # The default of --required-batch-size-multiple is 8. Without the patches of this plugin, later versions of fairseq drop the
  # last batch if its size is not a multiple of 8.
  run_to "$folder/$part.out" "$bin/fairseq-generate" "$data" --path "$folder/$checkpoint" --gen-subset "$subset" \
    --task posenc_translation "$@" \
    --max-tokens "${DECODE_TOKENS:-8000}" --required-batch-size-multiple 1 ${join:+--remove-bpe "$join"} --user-dir "$user_dir" "${device[@]}"
}
