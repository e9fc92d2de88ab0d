#!/usr/bin/env bash
# A Slurm of its own on this machine: runs "$@" with its commands configured, then takes everything down again.
# Exit code 77 and a line that says why when it cannot start.
set -u
skip() { printf 'skipped: %s\n' "$*"; exit 77; }
for program in munged slurmctld slurmd sbatch squeue; do
    command -v "$program" >/dev/null 2>&1 || skip "no $program here (Debian: slurm-wlm munge)"
done
[ "$(id -u)" -eq 0 ] || skip "slurmd and munged need root here"
folder=$(mktemp -d)
pids=()
finish() {
    code=$?
    [ "${#pids[@]}" -gt 0 ] && kill "${pids[@]}" 2>/dev/null
    wait 2>/dev/null
    rm -rf "$folder"
    exit "$code"
}
trap finish EXIT
chmod 755 "$folder"
mkdir "$folder/munge" "$folder/state" "$folder/spool"
dd if=/dev/urandom of="$folder/munge/key" bs=1024 count=1 2>/dev/null
chmod 600 "$folder/munge/key"
chmod 711 "$folder/munge"
munged --foreground --force --key-file="$folder/munge/key" --socket="$folder/munge/socket" \
    --pid-file="$folder/munge/pid" --log-file="$folder/munge/log" --seed-file="$folder/munge/seed" \
    >"$folder/munged.txt" 2>&1 &
pids+=($!)
host=$(hostname -s)
port=$((20000 + $$ % 20000))
cat >"$folder/slurm.conf" <<EOF
ClusterName=orrery
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,batch_sched_delay=0
ReturnToService=2
KillWait=1
MpiDefault=none
NodeName=$host NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
EOF
export SLURM_CONF=$folder/slurm.conf
for _ in $(seq 50); do [ -S "$folder/munge/socket" ] && break; sleep 0.1; done
[ -S "$folder/munge/socket" ] || skip "munged does not start: $(tail -n 1 "$folder/munged.txt")"
slurmctld -D -c >"$folder/ctld.txt" 2>&1 &
pids+=($!)
slurmd -D -N "$host" -f "$folder/slurm.conf" >"$folder/d.txt" 2>&1 &
pids+=($!)
for _ in $(seq 150); do
    [ "$(sinfo --noheader --format=%T 2>/dev/null)" = idle ] && break
    sleep 0.1
done
[ "$(sinfo --noheader --format=%T 2>/dev/null)" = idle ] ||
    skip "Slurm does not start: $(tail -n 1 "$folder/slurmctld.log" 2>/dev/null) $(tail -n 1 "$folder/slurmd.log" 2>/dev/null)"
"$@"
