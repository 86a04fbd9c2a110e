// What is served, what the server is, how busy it is.
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>

#include "server/options.h"
#include "tests/server/server_fixture.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

class ModelAndAdminTest : public ServerTest {
 protected:
  ModelAndAdminTest() { Start(); }
};

TEST_F(ModelAndAdminTest, TheModelIsDescribed) {
  v1::ListModelsResponse list;
  grpc::ClientContext context;
  ASSERT_TRUE(models()->ListModels(&context, {}, &list).ok());
  ASSERT_EQ(list.models_size(), 1);
  const v1::Model& model = list.models(0);
  EXPECT_EQ(model.id(), "fake");
  EXPECT_THAT(model.aliases(), ElementsAre("alias"));
  EXPECT_EQ(model.architecture(), "fake");
  EXPECT_EQ(model.state(), v1::MODEL_STATE_READY);
  EXPECT_EQ(model.max_model_len(), 256u);
  EXPECT_EQ(model.context_length(), 512u);
  EXPECT_EQ(model.vocab_size(), uint32_t(kFakeVocabSize));
  EXPECT_EQ(model.weight_type(), "F32");
  EXPECT_EQ(model.activations(), "int16");
  EXPECT_EQ(model.kv_type(), "f16");
  EXPECT_EQ(model.bos_token_id(), uint32_t(kStart));
  EXPECT_THAT(model.eos_token_ids(), ElementsAre(kEnd));
  EXPECT_TRUE(model.has_chat_template());
  EXPECT_EQ(model.num_parameters(), 1234u);
  EXPECT_EQ(model.sampling_defaults().temperature(), 1);
  EXPECT_EQ(model.sampling_defaults().top_p(), 1);
  EXPECT_EQ(model.sampling_defaults().repetition_penalty(), 1);
  EXPECT_THAT(model.capabilities(), UnorderedElementsAre(v1::CAPABILITY_COMPLETE, v1::CAPABILITY_CHAT,
                                                         v1::CAPABILITY_TEXT, v1::CAPABILITY_LOGPROBS));
}

TEST_F(ModelAndAdminTest, AModelIsFoundByAnyName) {
  for (const char* name : {"", "fake", "alias"}) {
    v1::GetModelRequest request;
    request.set_model(name);
    v1::GetModelResponse response;
    grpc::ClientContext context;
    ASSERT_TRUE(models()->GetModel(&context, request, &response).ok());
    EXPECT_EQ(response.model().id(), "fake");
  }
  v1::GetModelRequest request;
  request.set_model("other");
  v1::GetModelResponse response;
  grpc::ClientContext context;
  const grpc::Status status = models()->GetModel(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::NOT_FOUND);
  EXPECT_EQ(DetailsOf(status).info.reason(), "MODEL_NOT_FOUND");
}

TEST_F(ModelAndAdminTest, TheStateFollowsTheServer) {
  server_->BeginDrain();
  v1::GetModelResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(models()->GetModel(&context, {}, &response).ok());
  EXPECT_EQ(response.model().state(), v1::MODEL_STATE_DRAINING);
}

TEST_F(ModelAndAdminTest, TheServerIsDescribed) {
  v1::GetServerInfoResponse info;
  grpc::ClientContext context;
  ASSERT_TRUE(admin()->GetServerInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.version(), Version());
  EXPECT_GT(info.start_time().seconds(), 1'600'000'000);
  EXPECT_THAT(info.models(), ElementsAre("fake", "alias"));
  EXPECT_EQ(info.device(), "cpu");
  EXPECT_EQ(info.threads(), 1u);
  EXPECT_EQ(info.max_model_len(), 256u);
  EXPECT_EQ(info.block_size(), 16u);
  EXPECT_EQ(info.kv_blocks(), 64u);
  EXPECT_EQ(info.kv_bytes(), 4096u);
  EXPECT_EQ(info.max_num_seqs(), 8u);
  EXPECT_EQ(info.max_num_batched_tokens(), 64u);
  EXPECT_EQ(info.max_queued_requests(), 32u);
  EXPECT_EQ(info.max_queued_tokens(), uint64_t{1} << 20);
  EXPECT_EQ(info.max_queue_seconds(), 60u);
  EXPECT_EQ(info.max_logprobs(), 20);
}

TEST_F(ModelAndAdminTest, TheLoadIsThatOfTheMetrics) {
  model_->Hold();
  grpc::ClientContext context;
  const auto stub = generation();
  const auto reader = stub->StreamComplete(&context, StreamPrompt("abc"));
  model_->WaitUntilHeld();
  for (int i = 0; i < 2; ++i) {
    v1::GetLoadResponse load = Load();
    EXPECT_EQ(load.kv_blocks_live(), Metric("sluice_kv_blocks", "\"live\""));
    EXPECT_EQ(load.running(), Metric("sluice_requests_running"));
    EXPECT_EQ(load.waiting(), Metric("sluice_requests_waiting"));
    EXPECT_EQ(load.kv_blocks_total(), 64u);
    EXPECT_EQ(load.kv_blocks_free() + load.kv_blocks_live() + load.kv_blocks_cached(), 64u);
    model_->Release();
    v1::StreamCompleteResponse event;
    while (reader->Read(&event)) {
    }
  }
  EXPECT_TRUE(reader->Finish().ok());
  // Six tokens and four of the prompt within the last ten seconds.
  const v1::GetLoadResponse load = Load();
  EXPECT_DOUBLE_EQ(load.generation_tokens_per_second(), 0.6);
  EXPECT_DOUBLE_EQ(load.prompt_tokens_per_second(), 0.4);
  EXPECT_EQ(load.preemptions(), 0u);
  EXPECT_FALSE(load.draining());
}

TEST_F(ModelAndAdminTest, ThePublicPortHasNoAdminService) {
  v1::GetLoadResponse load;
  grpc::ClientContext context;
  EXPECT_EQ(v1::AdminService::NewStub(channel_)->GetLoad(&context, {}, &load).error_code(), grpc::UNIMPLEMENTED);
  EXPECT_EQ(server_->admin_address().rfind("127.0.0.1:", 0), 0u);
}

TEST_F(ModelAndAdminTest, TwoServersLiveInOneProcess) {
  auto other = Server::Start(TestOptions());
  ASSERT_TRUE(other.ok());
  auto model = std::make_shared<FakeModel>();
  model->SetScript("other");
  ASSERT_TRUE((*other)->Serve(FakeHost(model)).ok());
  v1::CompleteResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(v1::GenerationService::NewStub(NewChannel((*other)->grpc_address()))
                  ->Complete(&context, Prompt("abc"), &response)
                  .ok());
  EXPECT_EQ(response.generated().choices(0).text(), "other");
  EXPECT_EQ(CompleteOk(Prompt("abc")).choices(0).text(), "hello");
}

}  // namespace
}  // namespace sluice
