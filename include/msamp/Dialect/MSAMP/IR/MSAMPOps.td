// Umbrella over the dialect's op files.

#ifndef MSAMP_OPS_TD
#define MSAMP_OPS_TD

include "msamp/Dialect/MSAMP/IR/QuantizationOps.td"
include "msamp/Dialect/MSAMP/IR/OptimizerOps.td"
include "msamp/Dialect/MSAMP/IR/CollectiveOps.td"
include "msamp/Dialect/MSAMP/IR/KernelOps.td"

#endif // MSAMP_OPS_TD
