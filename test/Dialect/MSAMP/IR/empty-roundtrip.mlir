// A bundle over a layout without tensors packs and unpacks nothing, and says so
// in text that parses.
// RUN: msamp-opt %s | msamp-opt --mlir-print-op-generic | FileCheck %s

func.func @empty(%b: !msamp.bundle<@m, weight>) -> !msamp.bundle<@m, grad> {
  // CHECK: "msamp.pack"() : () -> !msamp.bundle<@m, grad>
  %0 = "msamp.pack"() : () -> !msamp.bundle<@m, grad>
  // CHECK: "msamp.unpack"(%{{.*}}) : (!msamp.bundle<@m, weight>) -> ()
  "msamp.unpack"(%b) : (!msamp.bundle<@m, weight>) -> ()
  return %0 : !msamp.bundle<@m, grad>
}
