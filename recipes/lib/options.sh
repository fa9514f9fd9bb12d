# Options of a recipe are environment variables: their defaults, and what their values may be.
# shellcheck shell=bash

declare -A default_of=()

defaults() { # NAME=VALUE...: the values of options that are not given
  local option name
  for option in "$@"; do
    name=${option%%=*}
    default_of[$name]=${option#*=}
    [[ -n ${!name:-} ]] || declare -g "$option"
  done
}

differing() { # NAME...: prints _NAME=VALUE for every option that has not its default value, to end the name of a folder
  local name
  for name in "$@"; do
    [[ ${!name} == "${default_of[$name]}" ]] || printf '_%s=%s' "$name" "${!name//[^A-Za-z0-9.=+_-]/_}"
  done
}

at_least() { # MINIMUM NAME...: the values are whole numbers, written in decimal digits
  local minimum=$1 name
  shift
  for name in "$@"; do require_number "$minimum" "${!name}" "$name=${!name} must be"; done
}

all_at_least() { # MINIMUM NAME: the value lists such numbers, at least one
  local number numbers
  read -rd '' -ra numbers <<<"${!2}" || true
  ((${#numbers[@]})) || numbers=('')
  for number in "${numbers[@]}"; do require_number "$1" "$number" "$2=${!2} must list numbers, each"; done
}

require_number() { # MINIMUM VALUE SUBJECT
  [[ $2 =~ ^(0|[1-9][0-9]{0,8})$ ]] && (($2 >= $1)) || fail "$3 a whole number from $1 to 999999999"
}

flags() { # NAME...: the options are given as 1, or not
  local name
  for name in "$@"; do [[ ${!name} =~ ^1?$ ]] || fail "$name=${!name} must be 1, or not be given"; done
}

one_of() { # NAME VALUE...: the option has one of these values
  local name=$1 value
  shift
  for value in "$@"; do [[ ${!name} != "$value" ]] || return 0; done
  fail "$name=${!name} must be one of: $*"
}
