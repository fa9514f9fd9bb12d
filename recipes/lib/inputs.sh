# Detect a changed input file. A recipe that reads files of the user sets `input_files`, and adds INPUTS to the settings of its
# stages. INPUTS contains the checksum of every input file. A stamp of an earlier version does not contain INPUTS, and is not compared.
# shellcheck shell=bash

input_files=() # NAME PATH for each input file. If PATH is missing, the file is PATH.gz. A name contains no blanks and no colons

find_inputs() { # set INPUTS to NAME:CHECKSUM for each input file, separated by blanks
  INPUTS=
  [[ -z $DRY_RUN ]] && ((${#input_files[@]})) || return 0
  INPUTS=$("$bin/python" recipes/lib/inputs.py "$OUT/.inputs" "${input_files[@]}") || exit 1
}

require_inputs() { # RECORDED: fail if RECORDED, an earlier value of INPUTS, contains another checksum of a file, or lacks a file
  local items item number path
  [[ -n $1 ]] || return 0 # the stage ran on a machine without the files
  read -ra items <<<"$INPUTS"
  for item in "${items[@]}"; do
    [[ " $1 " != *" $item "* ]] || continue
    for ((number = 0; number < ${#input_files[@]}; number += 2)); do
      [[ ${input_files[number]} != "${item%:*}" ]] || path=${input_files[number + 1]}
    done
    [[ -e $path || ! -e $path.gz ]] || path+=.gz
    fail "$path: $([[ " $1" == *" ${item%:*}:"* ]] && echo changed || echo added) after an earlier call with OUT=$OUT. Expected the" \
      "same input in all calls. Use another folder (OUT), or remove $OUT."
  done
}
