// Looks optimizers up in the text that CMake embeds from this folder.

#include "msamp/Optimizers/Library.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"

using namespace mlir;
using namespace mlir::msamp;

namespace {
struct EmbeddedOptimizer {
  const char *name;
  const char *source;
};
} // namespace

static constexpr EmbeddedOptimizer embeddedOptimizers[] = {
#include "EmbeddedOptimizers.inc"
};

SmallVector<StringRef> mlir::msamp::getLibraryOptimizerNames() {
  SmallVector<StringRef> names;
  for (const EmbeddedOptimizer &optimizer : embeddedOptimizers)
    names.push_back(optimizer.name);
  return names;
}

OwningOpRef<OptimizerOp> mlir::msamp::loadLibraryOptimizer(MLIRContext *context,
                                                           StringRef name) {
  for (const EmbeddedOptimizer &optimizer : embeddedOptimizers) {
    if (name != optimizer.name)
      continue;
    OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(
        optimizer.source, context, (name + ".mlir").str());
    if (!module)
      return {};
    OptimizerOp op = *module->getOps<OptimizerOp>().begin();
    op->remove();
    return op;
  }
  return {};
}
