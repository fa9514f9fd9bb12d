# A study NAME is a list of rows, recipes/studies/rows/NAME.txt. They are trained by the quickstart on the artificial language, or
# with DATA=multi30k by multi30k_uk on captions, from English to TARGET (de), where rows/NAME_multi30k.txt is the list if there is one.
# A study may set defaults of other options before it sources this file.
# shellcheck shell=bash

study=${0##*/}
DATA=${DATA:-language} rows=recipes/studies/rows/$study.txt
case $DATA in
  language)
    METHODS=${METHODS:-$rows}
    source recipes/quickstart
    ;;
  multi30k)
    [[ ! -e ${rows%.txt}_multi30k.txt ]] || rows=${rows%.txt}_multi30k.txt
    METHODS=${METHODS:-$rows} TARGET=${TARGET:-de}
    OUT=${OUT:-runs/${study}_multi30k_en-$TARGET}
    source recipes/multi30k_uk/run
    ;;
  *)
    echo "recipes/studies/$study: DATA=$DATA must be one of: language multi30k" >&2
    exit 1
    ;;
esac
