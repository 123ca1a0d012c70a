// Translates an optimizer's regions into the reference program. It starts from
// the optimizer and not from lowered code, so that the oracle shares nothing
// with what it checks.

#include "Emitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::msamp;
namespace plan = ::msamp::plan;

static plan::ValueType getValueType(Type type) {
  if (type.isF32())
    return plan::ValueType::F32;
  if (type.isF64())
    return plan::ValueType::F64;
  if (type.isInteger(1))
    return plan::ValueType::I1;
  return type.isInteger(32) ? plan::ValueType::I32 : plan::ValueType::I64;
}

/// The opcode of `op`, which is of the closed set.
static plan::Opcode getOpcode(Operation *op) {
  using plan::Opcode;
  return llvm::TypeSwitch<Operation *, Opcode>(op)
      .Case([](arith::ConstantOp) { return Opcode::Constant; })
      .Case([](arith::AddFOp) { return Opcode::AddF; })
      .Case([](arith::SubFOp) { return Opcode::SubF; })
      .Case([](arith::MulFOp) { return Opcode::MulF; })
      .Case([](arith::DivFOp) { return Opcode::DivF; })
      .Case([](arith::NegFOp) { return Opcode::NegF; })
      .Case([](math::AbsFOp) { return Opcode::AbsF; })
      .Case([](math::SqrtOp) { return Opcode::SqrtF; })
      .Case([](math::FmaOp) { return Opcode::FmaF; })
      .Case([](arith::MinimumFOp) { return Opcode::MinimumF; })
      .Case([](arith::MaximumFOp) { return Opcode::MaximumF; })
      .Case([](arith::CmpFOp) { return Opcode::CmpF; })
      .Case([](arith::SelectOp) { return Opcode::Select; })
      .Case([](PowiOp) { return Opcode::PowI; })
      .Case([](arith::AddIOp) { return Opcode::AddI; })
      .Case([](arith::SubIOp) { return Opcode::SubI; })
      .Case([](arith::MulIOp) { return Opcode::MulI; })
      .Case([](arith::AndIOp) { return Opcode::AndI; })
      .Case([](arith::OrIOp) { return Opcode::OrI; })
      .Case([](arith::XOrIOp) { return Opcode::XOrI; })
      .Case([](arith::ShLIOp) { return Opcode::ShLI; })
      .Case([](arith::ShRUIOp) { return Opcode::ShRUI; })
      .Case([](arith::ShRSIOp) { return Opcode::ShRSI; })
      .Case([](arith::CmpIOp) { return Opcode::CmpI; })
      .Case([](arith::BitcastOp) { return Opcode::Bitcast; })
      .Case([](arith::SIToFPOp) { return Opcode::SIToFP; })
      .Case([](arith::TruncIOp) { return Opcode::TruncI; })
      .Case([](arith::ExtUIOp) { return Opcode::ExtUI; })
      .Case([](arith::ExtSIOp) { return Opcode::ExtSI; });
}

static uint64_t getImmediate(Operation *op) {
  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    if (auto value = dyn_cast<FloatAttr>(constant.getValue()))
      return value.getValue().bitcastToAPInt().getZExtValue();
    return cast<IntegerAttr>(constant.getValue()).getValue().getZExtValue();
  }
  if (auto compare = dyn_cast<arith::CmpFOp>(op))
    return static_cast<uint64_t>(compare.getPredicate());
  if (auto compare = dyn_cast<arith::CmpIOp>(op))
    return static_cast<uint64_t>(compare.getPredicate());
  if (isa<arith::SIToFPOp, arith::ExtUIOp, arith::ExtSIOp>(op))
    return static_cast<uint64_t>(getValueType(op->getOperand(0).getType()));
  return 0;
}

static void addRegion(Block &block, ReferenceProgram &result) {
  llvm::DenseMap<Value, uint32_t> numbers;
  for (BlockArgument argument : block.getArguments())
    numbers[argument] = argument.getArgNumber();
  plan::Program program{};
  program.num_arguments = block.getNumArguments();
  program.first_instruction = result.instructions.size();
  for (Operation &op : block.without_terminator()) {
    plan::Instruction instruction{};
    instruction.opcode = getOpcode(&op);
    instruction.type = getValueType(isa<arith::CmpFOp, arith::CmpIOp>(op)
                                        ? op.getOperand(0).getType()
                                        : op.getResult(0).getType());
    instruction.immediate = getImmediate(&op);
    instruction.first_operand = result.operands.size();
    instruction.num_operands = op.getNumOperands();
    for (Value operand : op.getOperands())
      result.operands.push_back(numbers.lookup(operand));
    numbers[op.getResult(0)] =
        program.num_arguments + program.num_instructions++;
    result.instructions.push_back(instruction);
  }
  program.first_result = result.operands.size();
  for (Value value : block.getTerminator()->getOperands())
    result.operands.push_back(numbers.lookup(value));
  program.num_results = block.getTerminator()->getNumOperands();
  result.programs.push_back(program);
}

FailureOr<ReferenceProgram>
mlir::msamp::buildReferenceProgram(OptimizerOp optimizer) {
  ReferenceProgram result;
  addRegion(optimizer.getScalars().front(), result);
  addRegion(optimizer.getBody().front(), result);
  return result;
}
