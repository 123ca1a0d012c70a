// A rank's step as a training graph has it, an update for each tensor between upstream's
// collectives: it compiles to the plan of a sharded step and runs on ranks. What they save is
// what a step over the same tensors without collectives saves with --shard.
// REQUIRES: x86_64
// RUN: rm -rf %t && mkdir %t
// RUN: %python %S/Inputs/make-ranks.py %utils %t/m 2 3 f32 a:4,8 b:6
// RUN: msamp-compile %s -o %t/graph
// RUN: msamp-plan-dump %t/graph | FileCheck %s --check-prefix=PLAN
// RUN: sed -e '/shard\./d' -e 's/<2x8/<4x8/g; s/tensor<3x/tensor<6x/g; s/%meana/%ga/g; s/%meanb/%gb/g; s/return %alla/return %0#0/; s/%allb/%1#0/' %s > %t/whole.mlir
// RUN: msamp-compile %t/whole.mlir --shard=fsdp2 --ranks=2 -o %t/whole
// RUN: sh -c 'for plan in graph whole; do msamp-run %t/$plan --params %t/m.params --grads "%t/m.g{step}.r{rank}" --save %t/$plan.out || exit 1; done' | FileCheck %s
// RUN: cmp %t/graph.out %t/whole.out
// PLAN: sharded fsdp2 over 2 ranks, mean of gradients
// Without a word upstream's collectives sum.
// RUN: sed 's/ reduction = average//' %s > %t/sum.mlir
// RUN: msamp-compile %t/sum.mlir -o %t/sum
// RUN: msamp-compile %t/whole.mlir --shard=fsdp2 --ranks=2 --grad-reduction=sum -o %t/wholesum
// RUN: sh -c 'for plan in sum wholesum; do msamp-run %t/$plan --params %t/m.params --grads "%t/m.g{step}.r{rank}" --save %t/$plan.out || exit 1; done' | FileCheck %s
// RUN: cmp %t/sum.out %t/wholesum.out
// RUN: not cmp %t/sum.out %t/graph.out
// CHECK-COUNT-2: 2 tensors, 38 parameters; 3 steps, 0 skipped
// RUN: msamp-compile %s --shard=fsdp2 --ranks=2 --collectives=separate -o %t/separate
// RUN: msamp-plan-dump %t/separate | FileCheck %s --check-prefix=SEPARATE
// SEPARATE: sharded fsdp2 over 2 ranks, mean of gradients, separate collectives
// RUN: not msamp-compile %s --shard=flat --ranks=2 -o %t/no 2>&1 | FileCheck %s --check-prefix=POLICY
// POLICY: error: 'msamp.wrapped_update' op is to be sharded flat over 2 ranks, but its function is sharded fsdp2 over 2

shard.grid @dp(shape = 2)

!m = !msamp.scaled<2x8, #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>>

func.func @step(%a: tensor<2x8xf32>, %ma: !m, %ga: tensor<4x8xf32>,
                %b: tensor<3xf32>, %mb: tensor<3xf32>, %gb: tensor<6xf32>)
    -> (tensor<4x8xf32>, !m, tensor<6xf32>, tensor<3xf32>) {
  %meana = shard.reduce_scatter %ga on @dp grid_axes = [0] reduction = average scatter_axis = 0 : tensor<4x8xf32> -> tensor<2x8xf32>
  %0:2 = msamp.wrapped_update @sgd name "a" weight(%a : tensor<2x8xf32>) grad(%meana : tensor<2x8xf32>) states(%ma : !m)
  %alla = shard.all_gather %0#0 on @dp grid_axes = [0] gather_axis = 0 : tensor<2x8xf32> -> tensor<4x8xf32>
  %meanb = shard.reduce_scatter %gb on @dp grid_axes = [0] reduction = average scatter_axis = 0 : tensor<6xf32> -> tensor<3xf32>
  %1:2 = msamp.wrapped_update @sgd name "b" weight(%b : tensor<3xf32>) grad(%meanb : tensor<3xf32>) states(%mb : tensor<3xf32>)
  %allb = shard.all_gather %1#0 on @dp grid_axes = [0] gather_axis = 0 : tensor<3xf32> -> tensor<6xf32>
  return %alla, %0#1, %allb, %1#1 : tensor<4x8xf32>, !m, tensor<6xf32>, tensor<3xf32>
}
