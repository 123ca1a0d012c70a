// One update for each tensor, as an imported training graph has them: packed into
// bundles, they compile and run like a generated step. Plain and scaled tensors
// of different formats, with a master weight and without, share the step.
// REQUIRES: x86_64
// RUN: msamp-compile %s -o %t.msplan
// RUN: %python -c "import sys; sys.path.insert(0, '%utils'); import safetensors_io as st, struct; f = lambda n, k: struct.pack('<%%df' %% n, *[((i * k) %% 13 - 6) / 64 for i in range(n)]); [st.write(sys.argv[j + 1], {'w': st.Tensor('F32', (4, 8), f(32, 5 + j)), 'b': st.Tensor('F32', (8,), f(8, 3 + j))}) for j in range(2)]" %t.params %t.grads
// RUN: msamp-run %t.msplan --params %t.params --grads %t.grads --steps 5 --save %t.cpu | FileCheck %s
// RUN: msamp-run %t.msplan --params %t.params --grads %t.grads --steps 5 --backend=reference --save %t.reference | FileCheck %s
// RUN: cmp %t.cpu %t.reference
// CHECK: 2 tensors, 40 parameters; 5 steps, 0 skipped

#e4m3 = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>
!w = !msamp.scaled<4x8, #e4m3>
!p = !msamp.scaled<4x8, #msamp.storage<f16, scaling = <per_tensor, current>>>

func.func @step(%w: !w, %wp: !p, %wg: !w, %wm: !w, %b: tensor<8xf32>,
                %bg: tensor<8xf32>, %bm: tensor<8xf32>)
    -> (!w, !p, !w, tensor<8xf32>, tensor<8xf32>) {
  %0:3 = msamp.wrapped_update @sgd name "w" weight(%w : !w)
      master_weight(%wp : !p) grad(%wg : !w) states(%wm : !w)
  %1:2 = msamp.wrapped_update @sgd name "b" weight(%b : tensor<8xf32>)
      grad(%bg : tensor<8xf32>) states(%bm : tensor<8xf32>)
  return %0#0, %0#1, %0#2, %1#0, %1#1
      : !w, !p, !w, tensor<8xf32>, tensor<8xf32>
}
