# From raw text, TEXT/PART.LANGUAGE, to the binary data that fairseq-train reads.
# shellcheck shell=bash

make_subwords() { # PART...: writes TEXT/PART.sub.LANGUAGE; one model for both languages, learnt from the part `train`
  local part language files=() train=("$text/train.$SOURCE" "$text/train.$TARGET")
  for part in "$@"; do
    for language in "$SOURCE" "$TARGET"; do files+=("$text/$part.$language" "$text/$part.sub.$language"); done
  done
  if [[ $SUBWORDS == bpe ]]; then
    run_to "$text/bpe.log" "$bin/subword-nmt" learn-joint-bpe-and-vocab --symbols "$VOCABULARY" --total-symbols \
      --input "${train[@]}" --output "$text/codes" --write-vocabulary "$text/vocabulary.$SOURCE" "$text/vocabulary.$TARGET"
    while ((${#files[@]})); do
      run "$bin/subword-nmt" apply-bpe --codes "$text/codes" --input "${files[0]}" --output "${files[1]}"
      files=("${files[@]:2}")
    done
  else
    local model_type=bpe
    [[ $SUBWORDS != unigram ]] || model_type=unigram
    run "$bin/python" recipes/lib/spm.py train "$model_type" "$VOCABULARY" "$text/subwords" "${train[@]}"
    run "$bin/python" recipes/lib/spm.py encode "$text/subwords.model" "${files[@]}"
  fi
}

joining() { # prints how fairseq-generate joins these subwords to words
  if [[ $SUBWORDS == bpe ]]; then echo subword_nmt; else echo sentencepiece; fi
}

read_trees() { # PART...: side files of the trees TEXT/PART.SOURCE.conllu, beside the source text
  local part
  for part in "$@"; do posenc side trees "$text/$part.$SOURCE.conllu" "$text/$part.$SOURCE" --edges "$EDGES"; done
}

binarise_side_files() { # TEST_PART...: all side files beside the source text
  local tests
  printf -v tests ',%s' "${@/#/$text/}"
  posenc side binarise "$data" --source-lang "$SOURCE" --target-lang "$TARGET" --trainpref "$text/train" --validpref "$text/valid" \
    --testpref "${tests#,}" --subwords "$(joining)" --subwords-in .sub
}

binarise() { # TEST_PART...
  local tests
  printf -v tests ',%s' "${@/#/$text/}"
  tests=${tests//,/.sub,}
  tests=${tests#.sub,}.sub
  run rm -f "$data/dict.$SOURCE.txt" "$data/dict.$TARGET.txt" # of an interrupted call; fairseq-preprocess refuses to replace them
  run_to "$text/preprocess.log" "$bin/fairseq-preprocess" --source-lang "$SOURCE" --target-lang "$TARGET" --joined-dictionary \
    --destdir "$data" --trainpref "$text/train.sub" --validpref "$text/valid.sub" --testpref "$tests"
}
