#!/bin/bash
# Writes the step plans that the runtime's tests run (MSAMP_TEST_PLANS).
#
#   make-test-plans.sh OUTDIR COMPILER
#
# OUTDIR receives NAME.msplan and the parameter files that they were made from;
# COMPILER is msamp-compile. Names are part of the tests: <optimizer>-<level>,
# mixes of formats, and the worked examples of docs and reference tables.
set -euo pipefail

if [ $# -ne 2 ]; then
  echo "usage: $0 OUTDIR COMPILER" >&2
  exit 2
fi
out=$1
compiler=$2
utils=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out/sharded" "$out/large"

# Shapes: a scalar, an empty tensor, tails of every vector width, and more than
# one chunk (32768 elements) as a matrix and as a vector. Only the header of
# these files is read.
python3 - "$utils" "$out" <<'PYTHON'
import json
import struct
import sys

sys.path.insert(0, sys.argv[1])
import safetensors_io as st


def write(name, shapes):
    st.write(f"{sys.argv[2]}/{name}.safetensors", {
        tensor: st.Tensor("F32", shape, bytes(4 * st.element_count(shape)))
        for tensor, shape in shapes.items()})


write("mixed", {
    "matrix": (33, 7), "no_rows": (0, 4), "one": (1,), "row": (16,),
    "scalar": (), "square": (200, 200), "tail": (3, 11), "vector": (40000,),
    "zeros": (5, 13)})
write("four", {"p": (4,)})
write("single", {"p": (1,)})


def write_hole(name, shapes):
    """The same of large ones: a hole takes no disk."""
    header, end = {}, 0
    for tensor, shape in shapes.items():
        begin, end = end, end + 4 * st.element_count(shape)
        header[tensor] = {"dtype": "F32", "shape": shape,
                          "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with open(f"{sys.argv[2]}/{name}.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)


# More than 2^32 elements.
write_hole("large", {"p": (4198400, 1024)})
# Chunks of 2048 or 4096 elements for every warp of a large device, and a small one,
# and less than three vectors of its lanes at the end.
write("ends", {"few": (131272,), "some": (135370,)})
write_hole("long", {"few": (2097177, 4), "some": (1398200, 6)})
# A rank of three updates enough for a test's slices, in which tensors end.
write("sliced", {"rows": (750, 751), "square": (1025, 1025), "vector": (100003,)})
PYTHON

# plan NAME PARAMS OPTION...
plan() {
  local name=$1 params=$2
  shift 2
  "$compiler" --params "$out/$params.safetensors" --target=cpu,cuda \
    --arch=sm_90a,sm_80 "$@" -o "$out/$name.msplan"
}

groups=(--group '^(matrix|one|vector)$:weight_decay=0,lr=2e-3')
for level in O0 O1 O2 O3; do
  plan "adamw-$level" mixed --optimizer=adamw --opt-level=$level \
    --hyper lr=1e-2,weight_decay=0.1 "${groups[@]}"
  plan "adam-$level" mixed --optimizer=adam --opt-level=$level \
    --hyper lr=1e-2,weight_decay=0.1 "${groups[@]}"
  plan "sgd-$level" mixed --optimizer=sgd --opt-level=$level \
    --hyper lr=1e-2,momentum=0.9,dampening=0.1,weight_decay=0.1 "${groups[@]}"
done

# Mixes of formats that no level has.
plan adamw-e5m2 mixed --optimizer=adamw "${groups[@]}" --formats \
  weight=e5m2,master=bf16,grad=e5m2,first_moment=e5m2,second_moment=bf16
plan adamw-bf16 mixed --optimizer=adamw "${groups[@]}" --formats \
  weight=bf16,master=none,grad=bf16,first_moment=bf16,second_moment=bf16
plan adamw-half mixed --optimizer=adamw "${groups[@]}" --formats \
  weight=f16/unscaled,master=f32,grad=f16/unscaled,first_moment=f16/unscaled,second_moment=f16/unscaled
plan adamw-narrow mixed --optimizer=adamw "${groups[@]}" --formats \
  weight=e4m3,master=none,grad=e5m2,first_moment=e5m2,second_moment=e4m3
plan adamw-delayed mixed --optimizer=adamw "${groups[@]}" --formats \
  weight=e4m3/delayed-2,master=f16/delayed-3,grad=e4m3,first_moment=e4m3/delayed-4,second_moment=f16/delayed
plan adam-delayed-e5m2 mixed --optimizer=adam "${groups[@]}" --formats \
  weight=e5m2/delayed-1,master=f32,grad=f32,first_moment=e5m2/delayed-2,second_moment=f16/delayed-4
plan sgd-delayed mixed --optimizer=sgd "${groups[@]}" --formats \
  weight=e4m3/delayed-2,master=none,grad=e4m3,momentum_buffer=e4m3/delayed-4 \
  --hyper momentum=0.9,nesterov=1
plan adamw-bounded mixed --optimizer=adamw "${groups[@]}" --scaling=bounded
plan adam-bounded mixed --optimizer=adam "${groups[@]}" \
  --hyper weight_decay=0.1 --formats \
  weight=f32,master=none,grad=f32,first_moment=e5m2/bounded,second_moment=f16/bounded
plan sgd-bounded mixed --optimizer=sgd "${groups[@]}" --hyper momentum=0.9,nesterov=1 \
  --formats weight=e4m3,master=f16,grad=bf16,momentum_buffer=e4m3/bounded
# Of the last two, the weight's scale follows from a master that has none, and
# comes from the values of the body.
plan adamw-speculative mixed --optimizer=adamw "${groups[@]}" \
  --schedule=speculative
plan adam-speculative mixed --optimizer=adam "${groups[@]}" \
  --schedule=speculative --hyper weight_decay=0.1 --formats \
  weight=e4m3,master=f32,grad=bf16,first_moment=e5m2,second_moment=f16
plan sgd-speculative mixed --optimizer=sgd "${groups[@]}" \
  --schedule=speculative --hyper momentum=0.9,nesterov=1 --formats \
  weight=e4m3,master=none,grad=e5m2,momentum_buffer=e4m3
plan adamw-classes mixed --optimizer=adamw "${groups[@]}" \
  --class '^matrix$:O0' --class '^(row|square)$:O2' \
  --class '^vector$:weight=bf16,master=f32,grad=e4m3,first_moment=e4m3,second_moment=f16/delayed-2'

# What only devices need: hosts would take long.
for shapes in long ends; do
  for scaling in current bounded; do
    plan large/$shapes-$scaling $shapes --optimizer=adamw --scaling=$scaling
  done
  plan large/$shapes-speculative $shapes --optimizer=adamw \
    --schedule=speculative
done

# For more than one rank: a session by itself refuses these.
for policy in none fsdp2; do
  plan sharded/sharded-$policy mixed --optimizer=adamw "${groups[@]}" \
    --shard=$policy --ranks=3
done
plan sharded/sharded-fused mixed --optimizer=adamw "${groups[@]}" \
  --shard=flat --ranks=3 --collectives=fused
plan sharded/sharded-sum mixed --optimizer=adamw "${groups[@]}" \
  --shard=tensor --ranks=3 --grad-reduction=sum

for scaling in current bounded; do
  plan sharded/sliced-$scaling sliced --optimizer=adamw --scaling=$scaling \
    --shard=flat --ranks=3 --collectives=separate
done

# More than 2^32 elements, of which a rank has few.
"$compiler" --params "$out/large.safetensors" --optimizer=adamw --shard=flat \
  --ranks=65536 -o "$out/sharded/sharded-large.msplan"
rm "$out"/{ends,large,long,sliced}.safetensors

# Worked examples.
worked=weight=f32,master=none,grad=f32,second_moment=f16
plan worked-adamw four --optimizer=adamw --hyper lr=1e-2,weight_decay=0.01 \
  --formats $worked,first_moment=e4m3
plan delayed-adamw four --optimizer=adamw --hyper lr=1e-2,weight_decay=0.01 \
  --formats $worked,first_moment=e4m3/delayed
plan worked-adam single --optimizer=adam --hyper lr=1e-2,weight_decay=0.1 \
  --formats $worked,first_moment=e4m3
