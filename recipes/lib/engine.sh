# Load the functions that all recipes share. A recipe changes into the checkout, sources this file, and then
#   1. declares its options: kind, default and help            options.sh, workers.sh
#   2. declares its stages, and selects the requested stages   choose_stages in stages.sh
#   3. defines a function for each stage                       data.sh, training.sh, decoding.sh, scoring.sh, comparison.sh
#   4. calls run_recipe FUNCTION                               below. FUNCTION calls `stage` for every stage
# These functions read the following variables of the recipe: OUT, METHODS, SIZE, LENGTH, TRAIN_OPTIONS, GPUS, SOURCE, TARGET,
# SUBWORDS, VOCABULARY, `text` (folder of the raw text), `data` (folder of the binary data), `runs` (folder of the runs, if it is
# not OUT), and `input_files` (files of the user, inputs.sh).
# shellcheck shell=bash
set -euo pipefail
! declare -F run_recipe >/dev/null || return 0 # already loaded, by a study that sources another recipe

source recipes/lib/options.sh
source recipes/lib/commands.sh
source recipes/lib/stages.sh
source recipes/lib/inputs.sh
source recipes/lib/rows.sh
source recipes/lib/methods.sh
source recipes/lib/data.sh
source recipes/lib/workers.sh
source recipes/lib/training.sh
source recipes/lib/decoding.sh
source recipes/lib/scoring.sh
source recipes/lib/comparison.sh

runs='' comparing='' study_settings='' # environment variables with these names must have no effect

run_recipe() { # FUNCTION: check OUT and METHODS, then run the stages. FUNCTION calls `stage` for every stage
  check_output
  read_methods
  find_tools
  check_methods
  leave_rows_to_others
  open_output
  find_inputs
  run_stages "$1"
}
