# Train with several workers. A worker is a process of a training run. Each worker uses the CPU or one GPU of its machine. A
# training run can use several machines.
# shellcheck shell=bash

worker_options() { # DEFAULT: declare the options of a recipe that can train with several workers. DEFAULT is the default of GPUS
  option GPUS whole:0 "$1" "number of GPUs of each machine. 0: train on the CPU"
  option PROCS whole:1 1 "number of training processes of each machine without GPUs"
  option NNODES whole:1 1 "number of machines"
  option NODE_RANK whole:0 0 "index of this machine, from 0"
  option MASTER_ADDR text "" "address of machine 0"
  option MASTER_PORT whole:1 "" "port of machine 0. Default: 29500. With one machine, the default is a random port"
  option RDZV text "" "ADDRESS:PORT of machine 0, instead of MASTER_ADDR. torchrun then uses its rendezvous c10d. MAX_RESTARTS requires RDZV"
  option LOCAL_ADDR text "" "address of this machine, for RDZV. Default: the address of the network interface that leads to machine 0"
  option MAX_RESTARTS whole:0 0 "maximum number of restarts of a failed training run, from its last checkpoint. It requires RDZV"
  option WORKER_TIMEOUT whole:1 600 "number of seconds that machines wait for each other before training fails"
  option SLURM flag "" "train with srun, within a Slurm allocation"
  ((NODE_RANK < NNODES)) || fail "NODE_RANK=$NODE_RANK: too large. Expected less than NNODES=$NNODES."
  ((NNODES == 1)) || [[ -n $MASTER_ADDR$RDZV$SLURM ]] ||
    fail "NNODES=$NNODES: the address of machine 0 is missing. Set MASTER_ADDR, RDZV=ADDRESS:PORT or SLURM=1."
  [[ -z $RDZV || $RDZV =~ ^[^[:space:]]+:[0-9]{1,5}$ ]] || fail "RDZV=${RDZV//$'\n'/ }: not allowed. Expected ADDRESS:PORT of machine 0, such as m0:29500."
  [[ -z $RDZV || -z $MASTER_ADDR$SLURM ]] || fail "RDZV=$RDZV: cannot be combined with ${MASTER_ADDR:+MASTER_ADDR}${SLURM:+SLURM}. Remove one of the two."
  ((MAX_RESTARTS == 0)) || { ((NNODES > 1)) && [[ -n $RDZV ]]; } ||
    fail "MAX_RESTARTS=$MAX_RESTARTS: requires several machines and RDZV=ADDRESS:PORT, so that machines can join again."
  ((GPUS > 0 || NNODES > 1 || PROCS == 1 || BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 501)) || # `wait -n -p` is from Bash 5.1
    fail "PROCS=$PROCS: requires Bash 5.1 or newer. Found $BASH_VERSION. Set PROCS=1, or install a newer Bash."
  : "${MASTER_PORT:=$((NNODES > 1 ? 29500 : 20000 + RANDOM % 20000))}" # with several machines, all must use the same port
  WORKERS=$(((GPUS ? GPUS : PROCS) * NNODES))
  prepare_processes
}

one_worker() { # set the variables of `worker_options` for a recipe that always trains with one process on the CPU
  GPUS=0 PROCS=1 NNODES=1 NODE_RANK=0 MASTER_ADDR='' MASTER_PORT='' RDZV='' SLURM='' WORKERS=1
  prepare_processes
}

prepare_processes() {
  option OMP_NUM_THREADS whole:1 $((PROCS > 1 ? 1 : 2)) "number of CPU threads of each training process"
  # More threads do not make small models faster. On busy cores, training is 10 times slower without PASSIVE waiting of threads.
  export OMP_NUM_THREADS OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-PASSIVE}
  # Every update frees and allocates large arrays. Keep freed memory for reuse. The system must clear the pages of new memory,
  # which takes time.
  export MALLOC_MMAP_MAX_=${MALLOC_MMAP_MAX_:-0} MALLOC_TRIM_THRESHOLD_=${MALLOC_TRIM_THRESHOLD_:-$((2 ** 40))}
}

gpus_found='' # number of GPUs of this machine

require_gpus() { # fail if this machine has fewer GPUs than GPUS. fairseq would train on the CPU, without a message
  if ((GPUS == 0)) || [[ -n $DRY_RUN$SLURM ]]; then return 0; fi
  [[ -n $gpus_found ]] || gpus_found=$("$bin/python" recipes/lib/gpus.py)
  ((gpus_found >= GPUS)) ||
    fail "GPUS=$GPUS: PyTorch finds $gpus_found GPUs on this machine. Expected at least $GPUS. Correct the installation, or train on the CPU with GPUS=0."
}

launch() { # LOG OPTION...: run fairseq-train with all workers of this machine, and append its output to LOG
  local log=$1 train=("$bin/fairseq-train")
  shift
  require_gpus
  set -- "$@" --distributed-world-size "$WORKERS"
  ((NNODES == 1)) || export POSENC_TIMEOUT=$WORKER_TIMEOUT
  if ((GPUS == 0)); then
    train=("$bin/python" "$user_dir/evaluation/scoring/memory.py" "${train[@]}") # prints the peak memory of the process
    set -- "$@" --cpu --num-workers 0
    ((WORKERS == 1)) || set -- "$@" --ddp-backend legacy_ddp --distributed-backend gloo
  fi
  if [[ -n $SLURM ]]; then
    run_logged "$log" srun --nodes "$NNODES" --ntasks-per-node "$((GPUS ? GPUS : PROCS))" "${train[@]}" "$@" --distributed-port "$MASTER_PORT"
  elif ((NNODES > 1)); then
    run_with_others "$log" "${train[@]}" "$@"
  elif ((GPUS == 0 && PROCS > 1)); then
    run_workers "$log" "$PROCS" "${train[@]}" "$@" --distributed-no-spawn --distributed-init-method "tcp://127.0.0.1:$MASTER_PORT"
  else
    run_logged "$log" "${train[@]}" "$@" # with several GPUs, fairseq-train starts one process for each GPU
  fi
}

run_with_others() { # LOG COMMAND...: as run_logged, with torchrun, which starts the workers and connects to other machines
  local log=$1 meeting=(--nnodes "$NNODES") place=$MASTER_ADDR:$MASTER_PORT
  shift
  if [[ -n $RDZV ]]; then
    place=$RDZV
    [[ -n $LOCAL_ADDR || -n $DRY_RUN ]] || LOCAL_ADDR=$("$bin/python" "$user_dir/host/compat/addresses.py" "${RDZV%:*}") ||
      fail "RDZV=$RDZV: no route from this machine to ${RDZV%:*}. Expected the address of machine 0. Correct RDZV, or set LOCAL_ADDR"
    meeting+=(--nproc-per-node "$((GPUS ? GPUS : PROCS))" --rdzv-backend c10d --rdzv-endpoint "$RDZV" --rdzv-id posenc
      --rdzv-conf "is_host=$((NODE_RANK == 0)),join_timeout=$WORKER_TIMEOUT,read_timeout=$WORKER_TIMEOUT"
      ${LOCAL_ADDR:+--local-addr "$LOCAL_ADDR"} --max-restarts "$MAX_RESTARTS")
    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 # in PyTorch 2.13, a machine that joins again does not receive the address of a shared store
  else
    meeting+=(--node-rank "$NODE_RANK" --nproc-per-node "$((GPUS ? GPUS : PROCS))" --master-addr "$MASTER_ADDR"
      --master-port "$MASTER_PORT" --rdzv-conf "timeout=$WORKER_TIMEOUT")
  fi
  [[ $1 != "$bin/python" ]] || shift # torchrun starts Python itself
  export POSENC_NODE_RANK=$NODE_RANK
  ((NODE_RANK == 0)) || log+=.machine$NODE_RANK # machines may share the folder
  run_logged "$log" "$bin/torchrun" "${meeting[@]}" "$@"
}

run_logged() { # LOG COMMAND...: run a command, append its output to LOG, and show its progress
  local log=$1 before=0 training messages
  shift
  if [[ -n $DRY_RUN ]]; then show "$@" ">>" "$log"; else
    [[ ! -e $log ]] || before=$(wc -c <"$log")
    messages=$(mktemp)
    "$@" > >(tee -a "$log" | progress "$messages") 2>&1 &
    training=$!
    ((NNODES == 1)) || [[ -n $SLURM ]] || end_unmet "$log" "$before" "$training" 9>&- &
    wait "$training" || explain_failure "$log" "$before" "$messages"
    rm -f "$messages"
  fi
}

printed_since() { tail -c "+$(($2 + 1))" "$1"; } # LOG BYTES: print LOG without its first BYTES bytes

end_unmet() { # LOG BYTES PROCESS: end torchrun if the workers do not start in time, because PyTorch can wait without a limit
  local left=$((WORKER_TIMEOUT + 20))
  while sleep 1 && kill -0 "$3" 2>/dev/null && ! grep -q "$workers_began" < <(printed_since "$1" "$2"); do
    ((left -= 1)) || kill "$3"
  done
}
workers_began='distributed init (rank'

explain_failure() { # LOG BYTES MESSAGES: exit with an error message. With several machines, it names the machine and the reason
  local log=$1 found line place=${RDZV:-$MASTER_ADDR:$MASTER_PORT} came others=1
  line=$(grep -m 1 -vE "$consequence" "$3" || head -n 1 "$3") # after the error of one worker, other workers lose their connections
  rm -f "$3"
  if ((NNODES > 1)) && [[ -z $SLURM ]]; then
    found=$(printed_since "$log" "$2")
    ((NNODES == 2)) || others="1 to $((NNODES - 1))"
    if [[ -n $line ]]; then
      fail "training ended on machine $NODE_RANK: ${line#fairseq_posenc: } The complete output is in $log"
    elif [[ $found == *EADDRINUSE* ]]; then
      fail "machine $NODE_RANK: port ${place##*:} is in use. Expected a free port. Set another port on all machines${RDZV:+ in RDZV}${MASTER_ADDR:+ as MASTER_PORT}"
    elif [[ $found == *"$workers_began"* ]]; then
      :
    elif ((NODE_RANK)); then
      fail "machine $NODE_RANK: no answer from machine 0 at $place within $WORKER_TIMEOUT seconds. Check the address, and the recipe on machine 0." \
        "The complete output of torchrun is in $log"
    else
      [[ $found =~ ([0-9]+)/[0-9]+\ clients\ joined ]] && came=" (only ${BASH_REMATCH[1]} connected)" || came=
      fail "machine 0: not all of NNODES=$NNODES machines connected to $place within $WORKER_TIMEOUT seconds$came. Missing: NODE_RANK=$others." \
        "Start the recipe on the missing machine. The complete output of torchrun is in $log"
    fi
  fi
  tail -n 5 "$log" >&2
  [[ -z $line ]] || echo "$line" >&2 # on a full disk, it is not in the log
  fail "training failed. The last lines of its output are above. The complete output is in $log"
}
consequence='lost the connection|no answer from|could not connect'

run_workers() { # LOG COUNT COMMAND...: as run_logged, but start COUNT workers on this machine. If one worker fails, end all
  local log=$1 count=$2 rank ended failed workers=()
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
    failed=''
    wait -n -p ended "${workers[@]}" || failed=yes # waits for the next worker that ends
    for rank in "${!workers[@]}"; do
      if [[ ${workers[rank]} == "$ended" ]]; then break; fi
    done
    unset "workers[rank]"
    if [[ -n $failed ]]; then
      kill "${workers[@]}" 2>/dev/null || true
      wait
      ((rank == 0)) || tail -n 5 "$log.rank$rank" >&2
      fail "the training failed on worker $rank. For the output of all workers, see $log and $log.rank*."
    fi
  done
}
