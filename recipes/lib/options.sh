# Options of a recipe. A recipe calls `read_arguments "$@"`, declares every option once, and then calls `choose_stages`:
#
#   option NAME KIND DEFAULT HELP
#
# After the declaration, $NAME is the value of the argument NAME=VALUE, or else of the environment variable NAME, or else the
# default. An empty value means the default. --help, the checks of values, and the errors for misspelt names use the declarations.
#
# KIND           value
# whole:MIN      a whole number, at least MIN
# decimal        a decimal number that is not negative, such as 0.6 or 3e-4
# fraction       a decimal number from 0 to 1
# flag           1, or empty
# choice:A,B     one of the given words
# language       a language code, such as en, pt-BR or zh_Hans
# text           anything
# wholes:MIN, decimals, fractions, choices:A,B: a list of such values, separated by blanks. With a `?` at the end of a kind, an
# empty value is allowed and does not mean the default. A list must not contain equal values, such as 1e-3 and 0.001.
#
# Values are checked with regular expressions before they are used in ((...)), because bash would run commands in $(...) there.
# shellcheck shell=bash

declare -A given=() preset_of=() default_of=() kind_of=() help_of=()
option_names=() stages_given=() help_wanted=

# Environment variables of other programs. The checks for misspelt options and for options of other recipes skip these names.
ordinary_names="MASTER_ADDR MASTER_PORT NAME PORT HOST" # WSL sets NAME

read_arguments() { # ARGUMENT...: set `given` from NAME=VALUE, `help_wanted` from --help, and `stages_given` from names of stages
  local argument
  given=() stages_given=() help_wanted=
  for argument in "$@"; do
    if [[ $argument == -h || $argument == --help ]]; then
      help_wanted=1
    elif [[ $argument =~ ^([A-Za-z_][A-Za-z0-9_]*)=(.*)$ ]]; then
      given[${BASH_REMATCH[1]}]=${BASH_REMATCH[2]}
    else
      stages_given+=("$argument")
    fi
  done
  common_options
}

common_options() { # declare the options of every recipe
  option DRY_RUN flag "" "print all commands without running them"
  option POSENC_BIN text "" "bin folder of another installation. Default: .venv/bin, which recipes/setup creates"
}

preset() { # NAME=VALUE...: replace the default of an option that is declared later. For a second preset of an option, do nothing
  local item
  for item in "$@"; do
    [[ -n ${preset_of[${item%%=*}]+set} ]] || preset_of[${item%%=*}]=${item#*=}
  done
}

option() { # NAME KIND DEFAULT HELP
  local name=$1 kind=$2 value
  [[ -n ${kind_of[$name]+set} ]] || option_names+=("$name")
  default_of[$name]=${preset_of[$name]-$3} kind_of[$name]=$kind help_of[$name]=$4
  value=${given[$name]-${!name-}}
  if [[ -z $value ]]; then
    [[ $kind == *\? && -n ${given[$name]+set}${!name+set} ]] || value=${default_of[$name]}
  fi
  [[ -z $value ]] || require_kind "$name" "${kind%\?}" "$value"
  printf -v "$name" %s "$value"
}

require_kind() { # NAME KIND VALUE
  local name=$1 kind=${2%%:*} limit=${2#*:} value=$3 subject item items number LC_ALL=C
  local -A earlier=() # values of a list: number -> the earlier item with this number
  subject="$name=${value//$'\n'/ }: not allowed. Expected"
  case $kind in
    text) return 0 ;;
    wholes | decimals | fractions | choices)
      read -rd '' -ra items <<<"$value" || true
      ((${#items[@]})) || items=('')
      kind=${kind%s} subject="$name=${value//$'\n'/ }: not allowed. Expected a list in which each value is"
      ;;
    *) items=("$value") ;;
  esac
  for item in "${items[@]}"; do
    case $kind in
      whole) require_number "$limit" "$item" "$subject" ;;
      decimal) [[ $item =~ $decimal_number ]] || fail "$subject a decimal number from 0, such as 0.6 or 3e-4." ;;
      fraction) [[ $item =~ ^(0|1|0?\.[0-9]{1,9}|[01]\.0*)$ ]] || fail "$subject a decimal number from 0 to 1, such as 0.1." ;;
      flag) [[ $item == 1 ]] || fail "$subject 1. To switch it off, remove it." ;;
      language) [[ $item =~ ^[A-Za-z]{1,8}([-_][A-Za-z0-9]{1,8})*$ ]] || fail "$subject a language code, such as en or pt-BR." ;;
      choice) [[ $item != *,* && ,$limit, == *,"$item",* ]] || fail "$subject one of: ${limit//,/ }." ;;
    esac
    number=$item
    [[ $kind != decimal && $kind != fraction ]] || printf -v number %.16e "$item" # all digits of a 64-bit number
    [[ -z ${earlier[$number]+set} ]] ||
      fail "$name=${value//$'\n'/ }: ${earlier[$number]} and $item are equal. Expected different values. Remove one of the two."
    earlier[$number]=$item
  done
}

decimal_number='^((0|[1-9][0-9]{0,8})(\.[0-9]{1,12})?|\.[0-9]{1,12})([eE](-[0-9]{1,2}|\+?[0-9]))?$'

require_number() { # MINIMUM VALUE SUBJECT
  [[ $2 =~ ^(0|[1-9][0-9]{0,8})$ ]] && (($2 >= $1)) || fail "$3 a whole number from $1 to 999999999."
}

differing() { # NAME...: print _NAME=VALUE for every option that differs from its default, as a suffix of a folder name
  local name
  for name in "$@"; do
    [[ ${!name} == "${default_of[$name]}" ]] || printf '_%s=%s' "$name" "${!name//[^A-Za-z0-9.=+_-]/_}"
  done
}

# --- names ---

require_known_names() { # call this after the last declaration
  local name near
  for name in "${!given[@]}"; do
    [[ -n ${kind_of[$name]+set} ]] || fail "$name: unknown option$(elsewhere "$name" || did_you_mean "$name")"
  done
  while read -r name near; do
    if [[ $near != - ]]; then
      fail "$name: this environment variable is similar to an option. Did you mean $near? Correct the name, or unset $name."
    fi
    fail "$name: this environment variable is not an option of this recipe$(elsewhere "$name") Unset it. For all options, run with --help."
  done < <(compgen -e | near_names)
}

near_names() { # read names, one per line. Print the output of near_names.awk for the options of this and of other recipes
  local other
  other=$(options_of_all) || true
  awk -v own="${option_names[*]}" -v other="${other//$'\n'/ }" -v ordinary="$ordinary_names" -f recipes/lib/near_names.awk
}

did_you_mean() { # NAME: print the end of an error message, which names the most similar option, and --help
  local near
  near=$(echo "${1^^}" | near_names | cut -d ' ' -f 2)
  [[ -n $near && $near != - ]] || near=$(printf '%s\n' "${option_names[@]}" | grep -Fx -- "${1^^}") || true
  echo ".${near:+ Did you mean $near?} For all options, run with --help."
}

options_of_all() { # print FILE:option NAME for every declaration of a recipe or of recipes/lib
  grep -rHoE '^ *option [A-Z][A-Z0-9_]*' recipes
}

elsewhere() { # NAME: print the end of an error message, which names the recipes with this option. Fail if there are none
  local file files=()
  while read -r file; do files+=("${file#recipes/}"); done < <(options_of_all | awk -v name="$1" '$NF == name { sub(":.*", ""); print }')
  ((${#files[@]})) || return 1
  if [[ "${files[*]}" == *lib/* ]]; then files=("other recipes"); else files=("${files[@]/#/recipes/}"); fi
  printf -v file ', %s' "${files[@]}"
  echo ". It is an option of ${file#, }."
}

# --- help ---

print_help() { # STAGES: print the first comment of the recipe, its stages and its options
  local name
  sed -n '2,${/^#/!q; s/^# \{0,1\}//p;}' "$recipe"
  echo
  echo "Stages, all by default: $1"
  echo "Options, as arguments NAME=VALUE or as environment variables. Paths are relative to $PWD."
  echo "Parentheses at the end contain the allowed values. A list contains values separated by blanks:"
  for name in "${option_names[@]}"; do
    printf '  %s=%s\n      %s%s\n' "$name" "$(quoted "${default_of[$name]}")" "${help_of[$name]}" "$(kind_in_words "${kind_of[$name]}")"
  done
}

quoted() { if [[ $1 =~ [^A-Za-z0-9_./,:=+-] ]]; then printf '"%s"' "$1"; else printf %s "$1"; fi; } # VALUE

kind_in_words() { # KIND
  local kind=${1%\?}
  case $kind in
    choice:*) echo " (${kind#*:})" | sed 's/,/, /g' ;;
    choices:*) echo " (a list of: ${kind#*:})" | sed 's/,/, /g' ;;
    flag) echo " (1, or empty)" ;;
    wholes:* | decimals | fractions) echo " (a list)" ;;
  esac
}
