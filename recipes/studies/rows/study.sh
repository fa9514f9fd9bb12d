# A study NAME is a list of rows, recipes/studies/rows/NAME.txt. The quickstart trains these rows on the artificial language. With
# DATA=multi30k, recipes/multi30k_uk/run trains rows on captions, from SOURCE (default: en) to TARGET (default: de). The list of
# rows is then rows/NAME_multi30k.txt, if this file exists.
# A study may preset the defaults of other options before it sources this file.
# shellcheck shell=bash

study=${0##*/}
rows=recipes/studies/rows/$study.txt
read_arguments "$@"
option DATA choice:language,multi30k language "data: the artificial language of recipes/quickstart, or the captions of recipes/multi30k_uk/run"
study_settings=DATA # an output folder contains one kind of data
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
