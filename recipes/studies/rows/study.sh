# A study NAME is a list of rows, recipes/studies/rows/NAME.txt. They are trained by the quickstart on the artificial language, or
# with DATA=multi30k by multi30k_uk on captions, from English to TARGET (de), where rows/NAME_multi30k.txt is the list if there is one.
# A study may preset the defaults of other options before it sources this file.
# shellcheck shell=bash

study=${0##*/}
rows=recipes/studies/rows/$study.txt
read_arguments "$@"
option DATA choice:language,multi30k language "data: the artificial language of recipes/quickstart, or the captions of recipes/multi30k_uk/run"
if [[ $DATA == language ]]; then
  preset METHODS="$rows"
  source recipes/quickstart
else
  [[ ! -e ${rows%.txt}_multi30k.txt ]] || rows=${rows%.txt}_multi30k.txt
  preset METHODS="$rows" TARGET=de
  option SOURCE language en "source language"
  option TARGET language de "target language"
  preset OUT="runs/${study}_multi30k_$SOURCE-$TARGET"
  source recipes/multi30k_uk/run
fi
