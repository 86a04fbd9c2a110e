#include "client/cli/load_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "client/cli/terminal.h"

namespace sluice::cli {
namespace {

v1::GetLoadResponse Busy() {
  v1::GetLoadResponse load;
  load.set_state(v1::MODEL_STATE_READY);
  load.set_running(3);
  load.set_waiting(1);
  load.set_kv_blocks_live(50);
  load.set_kv_blocks_cached(25);
  load.set_kv_blocks_free(25);
  load.set_kv_blocks_total(100);
  load.set_generation_tokens_per_second(123.5);
  load.set_prompt_tokens_per_second(456.25);
  load.set_preemptions(2);
  return load;
}

TEST(LoadLine, TellsAsMuchAsTheWidthHolds) {
  const v1::GetLoadResponse load = Busy();
  const std::string whole =
      "running   3  waiting   1  KV [##########+++++.....]  50 %    123.5 tok/s out    456.2 tok/s in  preempted 2";
  EXPECT_EQ(LoadLine(load, 1000), whole);
  EXPECT_EQ(LoadLine(load, 107), whole);
  EXPECT_EQ(LoadLine(load, 79), "run 3  wait 1  KV 50 %  124 tok/s out  456 in  preempted 2");
  EXPECT_EQ(LoadLine(load, 39), "run 3  wait 1  KV 50 %  124 tok/s");
  for (int columns = 0; columns <= 130; ++columns) {
    EXPECT_LE(LoadLine(load, columns).size(), size_t(columns));
    EXPECT_GE(LoadLine(load, columns + 1).size(), LoadLine(load, columns).size());
  }
}

TEST(LoadLine, LargeNumbersFitToo) {
  v1::GetLoadResponse load = Busy();
  load.set_running(100'000);
  load.set_waiting(1'000'000);
  load.set_preemptions(UINT64_MAX);
  load.set_generation_tokens_per_second(1e9);
  load.set_draining(true);
  for (int columns : {1, 20, 39, 79, 119, 200}) EXPECT_LE(LoadLine(load, columns).size(), size_t(columns));
}

TEST(LoadLine, StatesAreWordsAndNoZeros) {
  v1::GetLoadResponse load;
  load.set_state(v1::MODEL_STATE_LOADING);
  EXPECT_EQ(LoadLine(load, 1000), "the model is still loading; requests are refused until it is ready");
  EXPECT_EQ(LoadLine(load, 27), "the model is still loading;");
  load.set_state(v1::MODEL_STATE_FAILED);
  load.set_draining(true);
  EXPECT_NE(LoadLine(load, 1000).find("the engine has failed"), std::string::npos);

  load = Busy();
  load.set_draining(true);
  load.set_state(v1::MODEL_STATE_DRAINING);
  EXPECT_EQ(LoadLine(load, 1000).substr(LoadLine(load, 1000).size() - 10), "  draining");
  EXPECT_EQ(LoadLine(load, 60).rfind("draining  run 3", 0), 0u) << LoadLine(load, 60);
}

TEST(LoadJson, NamesTheStateOnOneLine) {
  v1::GetLoadResponse load = Busy();
  const std::string text = LoadJson(load);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(text)["state"], "ready");
  load.set_state(v1::MODEL_STATE_LOADING);
  EXPECT_EQ(nlohmann::json::parse(LoadJson(load))["state"], "loading");
}

TEST(ProgressText, FitsTheTerminal) {
  EXPECT_EQ(ProgressText("requests", 4, 8, 80), "requests [###############...............] 4/8");
  EXPECT_EQ(ProgressText("requests", 4, 8, 25), "requests [####.....] 4/8");
  EXPECT_EQ(ProgressText("requests", 4, 8, 20), "requests 4/8");
  EXPECT_EQ(ProgressText("requests", 9, 8, 25), "requests [#########] 9/8") << "more than expected fill no more";
  for (int width = 15; width < 200; ++width) EXPECT_LT(ProgressText("requests", 64, 64, width).size(), size_t(width));
}

}  // namespace
}  // namespace sluice::cli
