#include "engine/base/cpu_info.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

namespace sluice {
namespace {

namespace fs = std::filesystem;

// A root directory with the files a test writes.
class CpuInfoTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(::testing::TempDir()) / ("cpu_info_" + std::to_string(getpid()));
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const fs::path file = root_ / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  double Quota() const { return CgroupCpuQuota(root_.string()); }
  int Threads() const { return DefaultThreadCount(root_.string()); }

  static int AllowedCpus() {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
  }

  fs::path root_;
};

TEST_F(CpuInfoTest, WithoutCgroupsThereIsNoQuota) {
  EXPECT_EQ(Quota(), 0);
  EXPECT_EQ(Threads(), AllowedCpus());
}

TEST_F(CpuInfoTest, ReadsVersion2) {
  Write("proc/self/cgroup", "0::/pod/container\n");
  Write("sys/fs/cgroup/pod/container/cpu.max", "250000 100000\n");
  EXPECT_EQ(Quota(), 2.5);
}

TEST_F(CpuInfoTest, MaxMeansNoQuota) {
  Write("proc/self/cgroup", "0::/pod\n");
  Write("sys/fs/cgroup/pod/cpu.max", "max 100000\n");
  EXPECT_EQ(Quota(), 0);
}

TEST_F(CpuInfoTest, TheTightestGroupAboveCounts) {
  Write("proc/self/cgroup", "0::/a/b/c\n");
  Write("sys/fs/cgroup/a/b/c/cpu.max", "400000 100000\n");
  Write("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  EXPECT_EQ(Quota(), 1.5);
}

TEST_F(CpuInfoTest, InsideAContainerTheMountRootIsTheGroup) {
  Write("proc/self/cgroup", "0::/path/of/the/host\n");
  Write("sys/fs/cgroup/cpu.max", "300000 100000\n");
  EXPECT_EQ(Quota(), 3);
}

TEST_F(CpuInfoTest, ReadsVersion1) {
  Write("proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/docker/1\n");
  Write("sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_quota_us", "50000\n");
  Write("sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Quota(), 0.5);
}

TEST_F(CpuInfoTest, Version1MountedUnderTheShortName) {
  Write("proc/self/cgroup", "4:cpu,cpuacct:/\n");
  Write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
  Write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Quota(), 2);
}

TEST_F(CpuInfoTest, Version1WithoutQuota) {
  Write("proc/self/cgroup", "4:cpu:/\n");
  Write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  Write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Quota(), 0);
}

TEST_F(CpuInfoTest, GarbageIsNoQuota) {
  Write("proc/self/cgroup", "nonsense\n0::/\n::\n");
  for (const char* text : {"", "x y", "100000", "100000 0", "-5 100000", "0 100000", "nan nan"}) {
    Write("sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(Quota(), 0) << text;
  }
}

TEST_F(CpuInfoTest, ThreadsAreTheQuotaRoundedDownButAtLeastOne) {
  Write("proc/self/cgroup", "0::/\n");
  for (const auto& [quota, threads] : {std::pair{"190000", 1}, {"100000", 1}, {"30000", 1}, {"1", 1}}) {
    Write("sys/fs/cgroup/cpu.max", std::string(quota) + " 100000\n");
    EXPECT_EQ(Threads(), threads) << quota;
  }
}

TEST_F(CpuInfoTest, ThreadsNeverExceedTheAllowedCpus) {
  Write("proc/self/cgroup", "0::/\n");
  Write("sys/fs/cgroup/cpu.max", "100000000 100000\n");
  EXPECT_EQ(Threads(), AllowedCpus());
}

TEST_F(CpuInfoTest, AffinityCounts) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &before)) {
      CPU_SET(cpu, &one);
      break;
    }
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(Threads(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

TEST(IsaTest, PortableIsFirstTheBestIsLastAndAllHaveNames) {
  const std::vector<Isa> isas = SupportedIsas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.front(), Isa::kPortable);
  EXPECT_EQ(isas.back(), BestIsa());
  EXPECT_TRUE(std::is_sorted(isas.begin(), isas.end()));
  for (Isa isa : isas) EXPECT_STRNE(IsaName(isa), "?");
}

}  // namespace
}  // namespace sluice
