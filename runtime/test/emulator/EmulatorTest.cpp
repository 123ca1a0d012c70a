// The emulator on small kernels: lanes that part and meet, what is late, and
// what it refuses.

#include "Machine.h"

#include <gtest/gtest.h>

#include <numeric>

using namespace emulator;

namespace {

/// Runs `body` in a block of 64 threads, over words of memory. %rd1 is their
/// address, %rd2 the thread's own word, %r1 the thread.
class Emulator : public testing::Test {
protected:
  void run(const std::string &body, unsigned numBlocks = 1) {
    const std::string text = R"(
.version 8.1
.target sm_90
.extern .shared .align 16 .b8 dynamic[];
.visible .entry kernel(
  .param .u64 kernel_param_0
)
.reqntid 64, 1, 1
{
  .reg .pred %p<8>;
  .reg .b16 %rs<8>;
  .reg .b32 %r<32>;
  .reg .b64 %rd<32>;
  .shared .align 4 .b8 fixed[8];
  ld.param.b64 %rd1, [kernel_param_0];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd2, %rd1, %rd3;
)" + body + "\n  ret;\n}\n";
    std::unique_ptr<Program> program = parsePtx(text, "kernel");
    const auto begin = reinterpret_cast<uint64_t>(words.data());
    const uint64_t end = begin + words.size() * sizeof(uint32_t);
    runGrid(*program, numBlocks, 256, begin, [=](uint64_t address) {
      return address >= begin && address < end ? Range{begin, end} : Range();
    });
  }
  int faultOf(const std::string &body) {
    try {
      run(body);
    } catch (const Fault &fault) {
      return fault.code;
    }
    return 0;
  }

  alignas(16) std::array<uint32_t, 64> words{};
};

TEST_F(Emulator, LanesPartAndMeet) {
  run(R"(
  and.b32 %r2, %r1, 1;
  setp.eq.b32 %p1, %r2, 0;
  mov.b32 %r3, 100;
  @%p1 bra $even;
  add.s32 %r3, %r3, 1;
  bra.uni $both;
$even:
  add.s32 %r3, %r3, 2;
$both:
  shfl.sync.bfly.b32 %r4, %r3, 1, 31, 0xffffffff;
  add.s32 %r5, %r3, %r4;
  st.b32 [%rd2], %r5;)");
  for (uint32_t word : words)
    EXPECT_EQ(word, 203u);
}

TEST_F(Emulator, LoopsEndForEachLaneByItself) {
  run(R"(
  mov.b32 %r2, 0;
$loop:
  setp.ge.u32 %p1, %r2, %r1;
  @%p1 bra $end;
  add.s32 %r2, %r2, 1;
  bra.uni $loop;
$end:
  st.b32 [%rd2], %r2;)");
  for (uint32_t thread = 0; thread < words.size(); ++thread)
    EXPECT_EQ(words[thread], thread);
}

TEST_F(Emulator, ATableOfBranches) {
  run(R"(
  and.b32 %r2, %r1, 1;
$table: .branchtargets
    $first,
    $second;
  brx.idx %r2, $table;
$first:
  st.b32 [%rd2], 7;
  bra.uni $end;
$second:
  st.b32 [%rd2], 8;
$end:)");
  EXPECT_EQ(words[4], 7u);
  EXPECT_EQ(words[5], 8u);
}

TEST_F(Emulator, BlocksMeetInMemory) {
  run(R"(
  setp.ne.b32 %p1, %r1, 0;
  bar.sync 0;
  @%p1 bra $end;
  atom.global.add.u32 %r2, [%rd1], 1;
$wait:
  ld.acquire.gpu.u32 %r3, [%rd1];
  setp.ne.b32 %p2, %r3, 3;
  @%p2 bra $wait;
$end:
  bar.sync 0;)",
      3);
  EXPECT_EQ(words[0], 3u);
}

// What is read before it is waited for is what was there: nothing.
TEST_F(Emulator, CopiesAreAsLateAsTheyMayBe) {
  std::iota(words.begin(), words.end(), 1u);
  run(R"(
  mov.b64 %rd4, dynamic;
  add.s64 %rd5, %rd4, %rd3;
  cp.async.ca.shared.global [%rd5], [%rd2], 4;
  cp.async.commit_group;
  ld.shared.b32 %r2, [%rd5];
  cp.async.wait_group 0;
  ld.shared.b32 %r3, [%rd5];
  setp.ne.b32 %p1, %r2, -1;
  add.s32 %r3, %r3, 100;
  selp.b32 %r4, 0, %r3, %p1;
  st.b32 [%rd2], %r4;)");
  for (uint32_t thread = 0; thread < words.size(); ++thread)
    EXPECT_EQ(words[thread], thread + 101);
}

// The same of bulk copies, which an elected lane begins for its warp.
TEST_F(Emulator, BulkCopiesArriveAtTheirBarrier) {
  std::iota(words.begin(), words.end(), 1u);
  run(R"(
  setp.ge.u32 %p1, %r1, 32;
  @%p1 bra $end;
  mov.b64 %rd4, dynamic;
  elect.sync %r2|%p2, -1;
  @!%p2 bra $wait;
  mbarrier.init.shared.b64 [%rd4+8], 1;
  fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared.b64 %rd5, [%rd4+8], 128;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%rd4+16], [%rd1], 128, [%rd4+8];
$wait:
  bar.warp.sync -1;
  add.s64 %rd6, %rd4, %rd3;
  ld.shared.b32 %r2, [%rd6+16];
$again:
  mbarrier.try_wait.parity.shared.b64 %p3, [%rd4+8], 0;
  @!%p3 bra $again;
  ld.shared.b32 %r3, [%rd6+16];
  setp.ne.b32 %p1, %r2, -1;
  add.s32 %r3, %r3, 100;
  selp.b32 %r4, 0, %r3, %p1;
  st.b32 [%rd2], %r4;
$end:)");
  for (uint32_t thread = 0; thread < words.size(); ++thread)
    EXPECT_EQ(words[thread], thread < 32 ? thread + 101 : thread + 1);
}

// 448 for infinity, and 0.3125 for 0.3: the first is the upper half.
TEST_F(Emulator, CastsRoundAsTheRuntimeDoes) {
  run(R"(
  cvt.rn.satfinite.e4m3x2.f32 %rs1, 0f7F800000, 0f3E99999A;
  cvt.rn.f16x2.e4m3x2 %r2, %rs1;
  st.b32 [%rd2], %r2;)");
  EXPECT_EQ(words[0], 0x5F003500u);
}

TEST_F(Emulator, FaultsSayWhatTheyAre) {
  EXPECT_EQ(faultOf("ld.b32 %r2, [%rd1+256];"), kIllegalAddress);
  EXPECT_EQ(faultOf("ld.b32 %r2, [%rd1+2];"), kMisalignedAddress);
  EXPECT_EQ(faultOf("ld.v4.b32 {%r2, %r3, %r4, %r5}, [%rd1+8];"),
            kMisalignedAddress);
  EXPECT_EQ(faultOf("mov.b64 %rd4, dynamic;\nld.shared.b32 %r2, [%rd4+256];"),
            kIllegalAddress);
  EXPECT_EQ(faultOf(R"(
  mbarrier.try_wait.parity.shared.b64 %p1, [fixed], 0;)"),
            kLaunchFailed);
  // By all lanes.
  EXPECT_EQ(faultOf("mbarrier.init.shared.b64 [fixed], 1;"), kLaunchFailed);
  EXPECT_EQ(faultOf(R"(
  setp.ne.b32 %p1, %r1, 0;
  @%p1 bra $end;
  mov.b64 %rd4, dynamic;
  mbarrier.init.shared.b64 [fixed], 1;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%rd4], [%rd1], 8, [fixed];
$end:)"),
            kMisalignedAddress);
  // Half of a warp waits for the other half, which has gone elsewhere.
  EXPECT_EQ(faultOf(R"(
  setp.eq.b32 %p1, %r1, 0;
  @%p1 bra $alone;
  bar.warp.sync -1;
  bra.uni $end;
$alone:
  bar.sync 0;
$end:)"),
            kLaunchFailed);
}

TEST_F(Emulator, WhatItDoesNotKnowIsAnError) {
  for (const char *body : {"wgmma.fence.sync.aligned;", "mov.b32 %r2, %r99;",
                           "bra $nowhere;", "mov.b32 %r2, %clock;"}) {
    try {
      run(body);
      ADD_FAILURE() << body << " is run";
    } catch (const PtxError &error) {
      EXPECT_NE(std::string(error.what()), "");
    }
  }
}

} // namespace
