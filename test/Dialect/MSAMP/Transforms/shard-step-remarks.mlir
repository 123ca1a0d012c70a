// What speaks for either kind of collectives: two ranks that share 2^30 parameters of O3 send a
// byte of a gradient and one of a weight for each that they do not update.
// RUN: msamp-opt %s --msamp-shard-step="policy=fsdp2 ranks=2" --remarks-filter="msamp-shard-step" -o /dev/null 2>&1 | FileCheck %s
// RUN: msamp-opt %s --msamp-shard-step="policy=none ranks=3 collectives=separate" --remarks-filter="msamp-shard-step" -o /dev/null 2>&1 | FileCheck %s --check-prefix=NONE

// CHECK: class @matrix, fsdp2 over 2 ranks: a rank sends 0.50 bytes a parameter of gradients in f8E4M3FN and 0.50 of weights
// 1 GiB at 328 and at 340 GB/s; 20 bytes for each of 2^29 parameters at 4146 GB/s.
// CHECK: shard-step-remarks.mlir:[[#@LINE+4]]:1: remark: [Analysis] Collectives {{.*}}"collectives of @dp: auto. On H200s that reach one another's memory a fused step would take 3.274 ms, the longer of links (3.274) and update (2.590), and a separate one up to 5.748, the exchange (3.158) and then the update; which ranks reach one another is known when they meet"
// Every rank updates all, from three gradients, and sends its own to two others.
// NONE: class @matrix, none over 3 ranks: a rank sends 2.00 bytes a parameter of gradients in f8E4M3FN and 0.00 of weights
// NONE: "collectives of @dp: separate. {{.*}} take 6.547 ms, the longer of links (6.547) and update (5.439), and a separate one up to 11.755, the exchange (6.316) and then the update"
msamp.layout @m {
  msamp.storage_class @matrix {
    weight = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>,
    master_weight = #msamp.storage<f16, scaling = <per_tensor, current>>,
    grad = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>,
    first = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>,
    second = #msamp.storage<f16, scaling = <per_tensor, current>>
  }
  msamp.param_group @default
  msamp.tensor "w" : tensor<32768x32768xf32> class(@matrix) group(@default)
}
msamp.optimizer @two states(first, second) hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32, %first: f32, %second: f32) {
  msamp.yield %param, %first, %second : f32, f32, f32
}
func.func @step(%w: !msamp.bundle<@m, weight>, %mw: !msamp.bundle<@m, master_weight>, %g: !msamp.bundle<@m, grad>, %a: !msamp.bundle<@m, first>, %b: !msamp.bundle<@m, second>)
    -> (!msamp.bundle<@m, weight>, !msamp.bundle<@m, master_weight>, !msamp.bundle<@m, first>, !msamp.bundle<@m, second>) {
  %0:4 = msamp.wrapped_update @two weight(%w : !msamp.bundle<@m, weight>) master_weight(%mw : !msamp.bundle<@m, master_weight>)
      grad(%g : !msamp.bundle<@m, grad>) states(%a, %b : !msamp.bundle<@m, first>, !msamp.bundle<@m, second>)
  return %0#0, %0#1, %0#2, %0#3 : !msamp.bundle<@m, weight>, !msamp.bundle<@m, master_weight>, !msamp.bundle<@m, first>, !msamp.bundle<@m, second>
}
