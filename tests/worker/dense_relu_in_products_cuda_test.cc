// Rectifiers that a card's products do as they write, or an emulated one's, against the CPU.
#include <algorithm>
#include <initializer_list>

#include "absl/strings/str_cat.h"
#include "tests/worker/dense_job_testing.h"

namespace tessera::worker::testing {
namespace {

using Ints = std::vector<int64_t>;

// A model of layers over five dense columns and two fields of a table of dim 4.
class Network {
 public:
  Network& Add(const std::string& name, const std::string& op,
               std::initializer_list<const char*> inputs, google::protobuf::Struct options = {}) {
    v1::LayerSpec* const layer = spec_.mutable_model()->add_layers();
    layer->set_name(name);
    layer->set_op(op);
    for (const char* input : inputs) layer->add_inputs(input);
    *layer->mutable_options() = std::move(options);
    return *this;
  }
  Network& AddLinear(const std::string& name, const char* input, double units, bool bias = true) {
    return Add(name, "linear", {input}, Options().Set("units", units).Set("bias", bias));
  }
  Network& AddTask(const std::string& name) {
    v1::TaskSpec* const task = spec_.mutable_model()->add_tasks();
    task->set_name(name);
    task->set_label("label");
    task->set_loss(v1::MEAN_SQUARED_ERROR);
    return *this;
  }
  const v1::JobSpec& spec() const { return spec_; }

 private:
  v1::JobSpec spec_ = Job("layers", 2, 5);
};

class ReluInProductsOnCuda : public CardTest {
 protected:
  // So many rectifiers are in products, and all that a step gives is what the CPU gives.
  static void ExpectTheCpusResults(const Network& network, size_t in_products) {
    const std::unique_ptr<Model> model = MakeModel(network.spec());
    ASSERT_NE(model, nullptr);
    Session cpu(*model), card(*model, nullptr, Stream());
    EXPECT_EQ(cpu.executor.relus_in_products(), 0);
    EXPECT_EQ(card.executor.relus_in_products(), in_products);
    // A batch's first step is given, its second captured, its third replayed.
    for (const uint32_t batch : {0u, 1u, 7u, 130u, 7u, 7u}) {
      SCOPED_TRACE(absl::StrCat("batch ", batch));
      for (Session* session : {&cpu, &card}) {
        session->trained = Normals(batch, session->trained.size(), 0.5f);
        session->Fill(batch, 3);
      }
      const Executor::StepResult a = cpu.Step(0.5f), b = card.Step(0.5f);
      ASSERT_TRUE(card.executor.status().ok()) << card.executor.status();
      EXPECT_NEAR(b.loss_sum, a.loss_sum, 1e-4 * std::max(1.0, a.loss_sum));
      ExpectNear(b.logits, a.logits, "logits");
      ExpectNear(card.trained_gradient, cpu.trained_gradient, "gradient of parameters");
      for (size_t i = 0; i < model->inputs().size(); ++i) {
        ExpectNear(card.executor.pooled_gradient(i), cpu.executor.pooled_gradient(i),
                   absl::StrCat("gradient of ", model->inputs()[i].table));
      }
      ExpectNear(card.Forward(), cpu.Forward(), "logits of evaluation");
    }
  }
};

TEST_F(ReluInProductsOnCuda, AreThoseOfLayersThatNobodyElseReads) {
  ExpectTheCpusResults(Network()
                           .AddLinear("a", "dense", 7)
                           .Add("b", "relu", {"a"})
                           .AddLinear("c", "b", 16, false)
                           .Add("d", "relu", {"c"})
                           .AddLinear("e", "d", 1),
                       2);
}

TEST_F(ReluInProductsOnCuda, AreThoseOfPooledRowsAndThroughAnotherShape) {
  ExpectTheCpusResults(Network()
                           .Add("flat", "flatten", {"embedding"})
                           .AddLinear("a", "flat", 6)
                           .Add("folded", "reshape", {"a"}, Options().Set("shape", Ints{0, 2, 3}))
                           .Add("b", "relu", {"folded"})
                           .Add("unfolded", "flatten", {"b"})
                           .AddLinear("c", "unfolded", 1),
                       1);
}

TEST_F(ReluInProductsOnCuda, MayBeReadByManyThemselves) {
  ExpectTheCpusResults(Network()
                           .AddLinear("a", "dense", 6)
                           .Add("b", "relu", {"a"})
                           .Add("c", "tanh", {"b"})
                           .Add("d", "multiply", {"b", "c"})
                           .AddLinear("e", "d", 1),
                       1);
}

TEST_F(ReluInProductsOnCuda, AreNotWhereAnotherReadsTheProduct) {
  ExpectTheCpusResults(Network()
                           .AddLinear("a", "dense", 6)
                           .Add("b", "relu", {"a"})
                           .Add("c", "tanh", {"a"})
                           .Add("d", "add", {"b", "c"})
                           .AddLinear("e", "d", 1),
                       0);
}

TEST_F(ReluInProductsOnCuda, AreNotWhereTwoOfThemReadTheProduct) {
  ExpectTheCpusResults(Network()
                           .AddLinear("a", "dense", 6)
                           .Add("b", "relu", {"a"})
                           .Add("c", "relu", {"a"})
                           .Add("d", "add", {"b", "c"})
                           .AddLinear("e", "d", 1),
                       0);
}

TEST_F(ReluInProductsOnCuda, AreNotWhereTheProductIsAnOutput) {
  ExpectTheCpusResults(
      Network().AddLinear("a", "dense", 1).Add("b", "relu", {"a"}).AddTask("a").AddTask("b"), 0);
}

TEST_F(ReluInProductsOnCuda, AreNotOfOtherActivationsNorBehindOtherOps) {
  ExpectTheCpusResults(Network()
                           .AddLinear("a", "dense", 6)
                           .Add("b", "tanh", {"a"})
                           .Add("c", "relu", {"b"})
                           .AddLinear("d", "c", 5)
                           .Add("e", "leaky_relu", {"d"})
                           .Add("f", "bias", {"e"})
                           .Add("g", "relu", {"f"})
                           .AddLinear("h", "g", 1),
                       0);
}

}  // namespace
}  // namespace tessera::worker::testing
