// Interprets a plan's reference program on scalars.

#ifndef MSAMP_RT_BACKENDS_REFERENCE_INTERPRETER_H
#define MSAMP_RT_BACKENDS_REFERENCE_INTERPRETER_H

#include "core/Plan.h"

#include <cstdint>
#include <vector>

namespace msamp::rt {

/// Runs one program again and again; keeps its values between runs only to save
/// their allocation. Values are held as bits, zero-extended to 64.
class Interpreter {
public:
  Interpreter(const Plan &plan, const PlanProgram &program);

  uint64_t &argument(size_t index) { return values[index]; }
  void run();
  uint64_t result(size_t index) const { return values[program.results[index]]; }

private:
  uint64_t evaluate(const plan::Instruction &instruction) const;
  uint64_t operand(const plan::Instruction &instruction, unsigned index) const {
    return values[plan.programOperands[instruction.first_operand + index]];
  }

  const Plan &plan;
  const PlanProgram &program;
  std::vector<uint64_t> values;
};

} // namespace msamp::rt

#endif // MSAMP_RT_BACKENDS_REFERENCE_INTERPRETER_H
