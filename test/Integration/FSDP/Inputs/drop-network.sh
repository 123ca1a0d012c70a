# Runs an MPI job of endless steps over TCP, takes the network away after some
# seconds, and prints what the ranks say; fails if one of them is still there
# long after. In a network namespace of its own:
#
#   unshare -n sh drop-network.sh SECONDS PROGRAM...
set -e
seconds=$1
shift
ip link set lo up
log=$(mktemp)
setsid mpirun --oversubscribe --enable-recovery --mca btl tcp,self \
  --mca btl_tcp_if_include lo "$@" > "$log" 2>&1 &
job=$!
sleep "$seconds"
ip link set lo down
for second in $(seq 30); do
  if ! kill -0 "$job" 2> /dev/null; then
    cat "$log"
    rm "$log"
    exit 0
  fi
  sleep 1
done
kill -9 "-$job"
cat "$log"
echo "the job is still there"
exit 1
