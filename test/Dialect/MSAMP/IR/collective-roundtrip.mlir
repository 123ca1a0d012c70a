// Process groups, sharded layouts and collectives print as text that parses to the same.
// RUN: msamp-opt %s | msamp-opt | FileCheck %s
// RUN: msamp-opt %s --verify-roundtrip -o /dev/null

// CHECK: msamp.process_group @dp ranks(4)
msamp.process_group @dp ranks(4)
// CHECK: msamp.process_group @near ranks(8) collectives(fused)
msamp.process_group @near ranks(8) collectives(fused)
// CHECK: msamp.process_group @one ranks(1) {note = "alone"}
msamp.process_group @one ranks(1) {note = "alone"}

// CHECK: msamp.layout @none sharding(none over @one) {
msamp.layout @none sharding(none over @one) {}
// CHECK: msamp.layout @flat sharding(flat over @dp) {
msamp.layout @flat sharding(flat over @dp) {}
// CHECK: msamp.layout @sums sharding(flat over @dp by sum) {
msamp.layout @sums sharding(flat over @dp by sum) {}
// CHECK: msamp.layout @tensor sharding(tensor over @dp) attributes {note = "whole"} {
msamp.layout @tensor sharding(tensor over @dp) attributes {note = "whole"} {}
// CHECK: msamp.layout @m sharding(fsdp2 over @dp) {
msamp.layout @m sharding(fsdp2 over @dp) {
  msamp.storage_class @c {weight = #msamp.storage<f32>, grad = #msamp.storage<f32>, wire = #msamp.storage<bf16>}
}

// CHECK-LABEL: func.func @collectives
// CHECK-SAME: (%[[W:.*]]: !msamp.bundle<@m, weight>, %[[G:.*]]: !msamp.bundle<@m, wire>)
func.func @collectives(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, wire>) -> (!msamp.bundle<@m, grad>, !msamp.bundle<@m, weight>) {
  // CHECK: %[[MEAN:.*]] = msamp.reduce_scatter %[[G]] over @dp : !msamp.bundle<@m, wire> -> !msamp.bundle<@m, grad>
  %0 = msamp.reduce_scatter %g over @dp : !msamp.bundle<@m, wire> -> !msamp.bundle<@m, grad>
  // CHECK: %[[WHOLE:.*]] = msamp.all_gather %[[W]] over @dp : !msamp.bundle<@m, weight> -> !msamp.bundle<@m, weight>
  %1 = msamp.all_gather %w over @dp : !msamp.bundle<@m, weight> -> !msamp.bundle<@m, weight>
  // CHECK: return %[[MEAN]], %[[WHOLE]] : !msamp.bundle<@m, grad>, !msamp.bundle<@m, weight>
  return %0, %1 : !msamp.bundle<@m, grad>, !msamp.bundle<@m, weight>
}

!whole = !msamp.scaled<8x4, #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>>
!part = !msamp.scaled<2x4, #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>>

// CHECK-LABEL: func.func @tensors
// CHECK-SAME: (%[[G:.*]]: tensor<8x4xbf16>, %[[S:.*]]: !msamp.scaled<8x4, {{.*}}>, %[[P:.*]]: !msamp.scaled<2x4, {{.*}}>)
func.func @tensors(%g: tensor<8x4xbf16>, %s: !whole, %p: !part) {
  // CHECK: msamp.all_reduce %[[G]] over @dp : tensor<8x4xbf16> -> tensor<8x4xf32>
  %0 = msamp.all_reduce %g over @dp : tensor<8x4xbf16> -> tensor<8x4xf32>
  // CHECK: msamp.reduce_scatter %[[S]] over @dp : !msamp.scaled<8x4, {{.*}}> -> tensor<2x4xf32>
  %1 = msamp.reduce_scatter %s over @dp : !whole -> tensor<2x4xf32>
  // CHECK: msamp.all_gather %[[P]] over @dp : !msamp.scaled<2x4, {{.*}}> -> !msamp.scaled<8x4, {{.*}}>
  %2 = msamp.all_gather %p over @dp : !part -> !whole
  // CHECK: msamp.reduce_scatter %[[G]] over @dp by sum : tensor<8x4xbf16> -> tensor<2x4xf32>
  %3 = msamp.reduce_scatter %g over @dp by sum : tensor<8x4xbf16> -> tensor<2x4xf32>
  // CHECK: msamp.all_reduce %[[G]] over @dp by sum : tensor<8x4xbf16> -> tensor<8x4xf32>
  %4 = msamp.all_reduce %g over @dp by sum : tensor<8x4xbf16> -> tensor<8x4xf32>
  return
}

// CHECK-LABEL: func.func @amaxes
// CHECK-SAME: (%[[A:.*]]: !msamp.bundle<@m, scalar>, %[[T:.*]]: tensor<f32>)
func.func @amaxes(%a: !msamp.bundle<@m, scalar>, %t: tensor<f32>) {
  // CHECK: msamp.all_reduce %[[A]] over @dp by max : !msamp.bundle<@m, scalar> -> !msamp.bundle<@m, scalar>
  %0 = msamp.all_reduce %a over @dp by max : !msamp.bundle<@m, scalar> -> !msamp.bundle<@m, scalar>
  // CHECK: msamp.all_reduce %[[T]] over @dp by max : tensor<f32> -> tensor<f32>
  %1 = msamp.all_reduce %t over @dp by max : tensor<f32> -> tensor<f32>
  // CHECK: msamp.barrier over @dp
  msamp.barrier over @dp
  return
}
