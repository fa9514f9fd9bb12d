# Convert raw text, TEXT/PART.LANGUAGE, to the binary data that fairseq-train reads.
# Optional options of a recipe:
#   SUBWORD_LINES  maximum number of lines per file from which subwords are learnt
#   JOBS           number of processes and threads
#   MERGES         for SUBWORDS=bpe: number of merges. MERGES replaces VOCABULARY. VOCABULARY counts both merges and characters
# shellcheck shell=bash

preprocess_options=() # additional options of fairseq-preprocess
subword_symbol=''     # a token that SentencePiece never splits, such as the separator of sentences
normalisation=nmt_nfkc # SentencePiece's rule for the normalisation of characters

refuse_captions() { # fail if DATA is the artificial language and an option of the captions is set
  [[ $DATA == language ]] || return 0
  [[ -z $DATA_FROM ]] || fail "DATA_FROM=$DATA_FROM: has no effect with DATA=language. Set DATA=multi30k, or remove DATA_FROM."
  [[ ${TARGET:-de} == de ]] || fail "TARGET=$TARGET: has no effect with DATA=language. Set DATA=multi30k, or remove TARGET."
}

record_of_downloads() { # print the file for checksums of downloaded captions. In a read-only checkout, it is a file of OUT
  if [[ -w data-bin ]]; then echo data-bin/multi30k.sha256; else echo "$OUT/downloads/trusted.sha256"; fi
}

make_text() { # write TEXT/PART.LANGUAGE: the artificial language, or Multi30K
  if [[ $DATA == language ]]; then
    posenc data language "$text" --seed "$DATA_SEED" --train "$SENTENCES" --test "$TEST" --test-long 1
  else
    posenc data multi30k "$text" --source "$SOURCE" --target "$TARGET" --from "$DATA_FROM" \
      --downloads "$OUT/downloads" --record "$(record_of_downloads)"
  fi
}

make_subwords() { # PART...: learn one subword model for both languages from `train`, and write TEXT/PART.sub.LANGUAGE
  local symbols=(--symbols "${MERGES:-$VOCABULARY}") train=("$text/train.$SOURCE" "$text/train.$TARGET") model_type=bpe
  if [[ $SUBWORDS == bpe ]]; then
    [[ -n ${MERGES:-} ]] || symbols+=(--total-symbols)
    run_to "$text/bpe.log" "$bin/subword-nmt" learn-joint-bpe-and-vocab "${symbols[@]}" \
      --input "${train[@]}" --output "$text/codes" --write-vocabulary "$text/vocabulary.$SOURCE" "$text/vocabulary.$TARGET"
    [[ -n $DRY_RUN ]] || ! grep -q "no pair has frequency" "$text/bpe.log" ||
      fail "the text is too small for ${symbols[1]} subwords (subword-nmt). Use fewer subwords."
  elif [[ $SUBWORDS != none ]]; then
    [[ $SUBWORDS != unigram ]] || model_type=unigram
    run "$bin/python" recipes/lib/spm.py train ${subword_symbol:+"--symbol=$subword_symbol"} "$model_type" "$normalisation" "$VOCABULARY" "$text/subwords" \
      "${SUBWORD_LINES:-1000000}" "${train[@]}"
  fi
  encode_subwords "$text" "$@"
}

encode_subwords() { # FOLDER PART...: write TEXT/PART.sub.LANGUAGE, with the subword model of FOLDER
  local folder=$1 part language files=()
  shift
  for part in "$@"; do
    for language in "$SOURCE" "$TARGET"; do files+=("$text/$part.$language" "$text/$part.sub.$language"); done
  done
  if [[ $SUBWORDS != none && $SUBWORDS != bpe ]]; then
    run "$bin/python" recipes/lib/spm.py encode "$folder/subwords.model" "${JOBS:-1}" "${files[@]}"
    return
  fi
  while ((${#files[@]})); do
    if [[ $SUBWORDS == none ]]; then
      refuse_reserved_words "${files[0]}"
      run cp "${files[0]}" "${files[1]}"
    else
      run "$bin/subword-nmt" apply-bpe --codes "$folder/codes" --input "${files[0]}" --output "${files[1]}"
      refuse_reserved_words "${files[1]}" # a frequent word such as </s> is one subword
    fi
    files=("${files[@]:2}")
  done
}

special_tokens=1 # number of tokens that fairseq adds to a sentence: </s>

require_length() { # LENGTH FILE...: check before training that no sentence has more than LENGTH tokens
  local file most=$(($1 - special_tokens))
  shift
  for file in "$@"; do
    # awk would read a file name that contains "=" as an assignment
    [[ -n $DRY_RUN ]] || name=$file awk -v most="$most" 'NF > most { print ENVIRON["name"] ", line " NR ", has " NF " subwords"; exit 1 }' <"$file" ||
      fail "LENGTH=$((most + special_tokens)): too short for the sentence above. Expected $special_tokens more than its number of subwords. Increase LENGTH."
  done
}

# PART...: call require_length with the option LENGTH for TEXT/PART.sub.LANGUAGE. Skip files that are not on this machine
require_lengths() {
  local part language
  for part in "$@"; do
    for language in "$SOURCE" "$TARGET"; do
      [[ ! -e $text/$part.sub.$language ]] || require_length "$LENGTH" "$text/$part.sub.$language"
    done
  done
}

refuse_reserved_words() { # FILE: fail if a word of the text would be padding, or the end of a sentence
  [[ -n $DRY_RUN ]] || name=$1 awk '{ for (i = 1; i <= NF; i++) if ($i ~ /^<(s|pad|\/s)>$/) { print ENVIRON["name"] ", line " NR ": " $i; exit 1 } }' <"$1" ||
    fail "SUBWORDS=${SUBWORD_KIND:-${SUBWORDS:-none}}: the word above is reserved for fairseq's dictionary. Expected other words. Replace it, or use SUBWORDS=unigram."
}

joining() { # print the value of fairseq-generate's --remove-bpe for SUBWORDS. Print nothing for whole words
  case $SUBWORDS in
    none) ;;
    bpe) echo subword_nmt ;;
    *) echo sentencepiece ;;
  esac
}

read_trees() { # PART...: convert the trees in TEXT/PART.SOURCE.conllu to side files next to the source text
  local part
  for part in "$@"; do posenc side trees "$text/$part.$SOURCE.conllu" "$text/$part.$SOURCE" --edges "$EDGES"; done
}

binarise_side_files() { # TEST_PART...: convert the side files next to the source text to binary files, for all parts
  local tests
  join_prefixes "" "$@"
  posenc side binarise "$data" --source-lang "$SOURCE" --target-lang "$TARGET" --trainpref "$text/train" --validpref "$text/valid" \
    --testpref "$tests" --subwords "$(joining)" --subwords-in .sub
  rm -f "$data/.side-files.done" # a stamp of an earlier version. fairseq could read the languages "side" and "files" from its name
}

join_prefixes() { # ENDING PART...: set `tests` to the prefixes of all parts, separated by commas for fairseq
  # A prefix is TEXT/PART followed by ENDING.
  local ending=$1 part
  shift
  tests=
  for part in "$@"; do tests+=${tests:+,}$text/$part$ending; done
}

binarise() { # TEST_PART...
  local tests
  join_prefixes .sub "$@"
  run rm -f "$data/dict.$SOURCE.txt" "$data/dict.$TARGET.txt" # fairseq-preprocess does not replace files of an interrupted call
  run_to "$text/preprocess.log" "$bin/fairseq-preprocess" --source-lang "$SOURCE" --target-lang "$TARGET" --joined-dictionary \
    --destdir "$data" --trainpref "$text/train.sub" --validpref "$text/valid.sub" --testpref "$tests" "${preprocess_options[@]}"
}

binarise_tests() { # FOLDER TEST_PART...: convert only test sets, with the dictionaries of the binary data in FOLDER
  local folder=$1 tests
  shift
  join_prefixes .sub "$@"
  run rm -f "$data/dict.$SOURCE.txt" "$data/dict.$TARGET.txt"
  run_to "$text/preprocess.log" "$bin/fairseq-preprocess" --source-lang "$SOURCE" --target-lang "$TARGET" \
    --srcdict "$folder/dict.$SOURCE.txt" --tgtdict "$folder/dict.$TARGET.txt" --destdir "$data" --testpref "$tests"
}

# For large training texts, use these functions instead of `binarise`: first `divide_train`, then `binarise_part` for every part,
# then `binarise_rest`. With --upsample-primary 1, fairseq-train combines train, train1, ... into the complete training data.

divide_train() { # TOKENS: divide the training text into parts of at most TOKENS tokens. Write TEXT/parts and TEXT/dict.txt
  run "$bin/python" recipes/lib/parts.py "$1" "$text/dict.txt" "$text/parts" "$text/train.sub" "$SOURCE" "$TARGET"
}

binarise_part() { # PREFIX NAME: convert one part of the training text to DATA/NAME.*, where NAME is train, train1, ...
  local made=$data/.$2 pair=$SOURCE-$TARGET language ending
  run rm -rf "$made"
  preprocess "$text/preprocess-$2.log" --destdir "$made" --trainpref "$1"
  for language in "$SOURCE" "$TARGET"; do
    for ending in bin idx; do run mv "$made/train.$pair.$language.$ending" "$data/$2.$pair.$language.$ending"; done
  done
  run rm -rf "$made"
}

binarise_rest() { # TEST_PART...: convert the validation set and the test sets, and write the dictionaries
  local tests
  join_prefixes .sub "$@"
  run rm -f "$data/dict.$SOURCE.txt" "$data/dict.$TARGET.txt"
  preprocess "$text/preprocess.log" --destdir "$data" --validpref "$text/valid.sub" --testpref "$tests"
}

train_parts() { # print the prefixes of the parts that divide_train has written, or one prefix if it has not run
  if [[ -e $text/parts ]]; then cat "$text/parts"; else echo "$text/train.sub"; fi
}

preprocess() { # LOG OPTION...: run fairseq-preprocess with the dictionary TEXT/dict.txt
  local log=$1
  shift
  run_to "$log" "$bin/fairseq-preprocess" --source-lang "$SOURCE" --target-lang "$TARGET" --joined-dictionary \
    --srcdict "$text/dict.txt" --workers "${JOBS:-1}" "$@"
}
