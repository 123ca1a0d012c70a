// msamp-opt: runs passes and pipelines on MLIR text, msamp's and upstream's.

#include "msamp/Pipelines/Pipelines.h"

#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  mlir::registerAllPasses();
  mlir::msamp::registerMSAMPDialects(registry);
  mlir::msamp::registerMSAMPPasses();
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "msamp optimizer driver\n", registry));
}
