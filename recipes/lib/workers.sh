# Workers: the processes of one training, on a CPU or on the GPUs of one or several machines.
# shellcheck shell=bash

worker_options() { # GPUS, the default: declares the options of a recipe that trains with several workers
  option GPUS whole:0 "$1" "GPUs of each machine; 0 trains on the CPU"
  option PROCS whole:1 1 "processes that train together on the CPU"
  option NNODES whole:1 1 "machines"
  option NODE_RANK whole:0 0 "number of this machine, from 0"
  option MASTER_ADDR text "" "address of machine 0"
  option MASTER_PORT whole:1 "" "port of machine 0; default: 29500, on one machine a random one"
  option SLURM flag "" "train with srun, within an allocation"
  ((GPUS || NNODES == 1)) || fail "several machines train on GPUs; on a CPU use PROCS"
  ((NODE_RANK < NNODES)) || fail "NODE_RANK=$NODE_RANK must be below NNODES=$NNODES"
  ((NNODES == 1)) || [[ -n $MASTER_ADDR$SLURM ]] || fail "NNODES=$NNODES needs MASTER_ADDR, the address of machine 0, or SLURM=1"
  : "${MASTER_PORT:=$((NNODES > 1 ? 29500 : 20000 + RANDOM % 20000))}" # all machines need the same
  if ((GPUS)); then WORKERS=$((GPUS * NNODES)); else WORKERS=$PROCS; fi
  prepare_processes
}

one_worker() { # for a recipe that trains with one process on the CPU
  GPUS=0 PROCS=1 NNODES=1 NODE_RANK=0 MASTER_ADDR='' MASTER_PORT='' SLURM='' WORKERS=1
  prepare_processes
}

prepare_processes() {
  option OMP_NUM_THREADS whole:1 $((PROCS > 1 ? 1 : 2)) "threads of each training process on the CPU"
  # Small models gain nothing from more threads, and threads that spin while they wait are 10 times slower on busy cores.
  export OMP_NUM_THREADS OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-PASSIVE}
  # Every update frees large arrays and needs them again; glibc would return them to the system, which clears their pages anew.
  export MALLOC_MMAP_MAX_=${MALLOC_MMAP_MAX_:-0} MALLOC_TRIM_THRESHOLD_=${MALLOC_TRIM_THRESHOLD_:-$((2 ** 40))}
}

launch() { # LOG OPTION...: fairseq-train with all workers of this machine; what it prints is appended to LOG
  local log=$1
  shift
  local measured=("$bin/python" "$user_dir/evaluation/scoring/memory.py" "$bin/fairseq-train") # logs the peak memory of the process
  set -- "$@" --distributed-world-size "$WORKERS"
  if ((GPUS == 0 && PROCS > 1)); then
    run_workers "$log" "$PROCS" "${measured[@]}" "$@" --cpu --num-workers 0 --ddp-backend legacy_ddp --distributed-backend gloo \
      --distributed-no-spawn --distributed-init-method "tcp://127.0.0.1:$MASTER_PORT"
  elif ((GPUS == 0)); then
    run_logged "$log" "${measured[@]}" "$@" --cpu --num-workers 0
  elif [[ -n $SLURM ]]; then
    run_logged "$log" srun --nodes "$NNODES" --ntasks-per-node "$GPUS" "$bin/fairseq-train" "$@" --distributed-port "$MASTER_PORT"
  elif ((NNODES > 1)); then
    run_logged "$log" "$bin/torchrun" --nnodes "$NNODES" --node-rank "$NODE_RANK" --nproc-per-node "$GPUS" \
      --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" "$bin/fairseq-train" "$@"
  else
    run_logged "$log" "$bin/fairseq-train" "$@" # starts a process for every GPU by itself
  fi
}

run_logged() { # LOG COMMAND...: shows the progress on the screen
  local log=$1
  shift
  if [[ -n $DRY_RUN ]]; then show "$@" ">>" "$log"; else
    "$@" > >(tee -a "$log" | progress) 2>&1 &
    wait $! || { tail -n 5 "$log" >&2 && fail "training failed; its last lines are above, all of them in $log"; }
  fi
}

run_workers() { # LOG COUNT COMMAND...: as run_logged, with processes that train together; where one fails, the others end too
  local log=$1 count=$2 rank failed='' workers=()
  shift 2
  for ((rank = count - 1; rank >= 0; rank--)); do
    if [[ -n $DRY_RUN ]]; then
      show "$@" --distributed-rank "$rank" ">>" "$log"
    elif ((rank)); then
      "$@" --distributed-rank "$rank" >>"$log.rank$rank" 2>&1 &
      workers[rank]=$!
    else
      "$@" --distributed-rank 0 > >(tee -a "$log" | progress) 2>&1 &
      workers[0]=$!
    fi
  done
  while ((${#workers[@]})); do
    for rank in "${!workers[@]}"; do
      if kill -0 "${workers[rank]}" 2>/dev/null; then continue; fi
      wait "${workers[rank]}" || failed+=" $rank"
      unset "workers[rank]"
    done
    if [[ -n $failed ]]; then
      kill "${workers[@]}" 2>/dev/null || true
      wait
      [[ $failed == *" 0"* ]] || tail -n 5 "$log.rank${failed##* }" >&2
      fail "training failed on worker$failed; all that the workers printed is in $log and $log.rank*"
    fi
    sleep 0.5
  done
}
