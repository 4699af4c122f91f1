#pragma once

#include <string>

#include "google/protobuf/util/json_util.h"
#include "tests/documents.h"
#include "tests/worker/dense_job_testing.h"

namespace tessera::worker::testing {

// A model of the zoo as small as it can be with all its parts, from tests/golden/tiny_models.json;
// one that is not there has the options of an MLP.
inline v1::ModelSpec TinyModel(const std::string& name) {
  using google::protobuf::util::JsonStringToMessage;
  google::protobuf::Struct all;
  const auto read = JsonStringToMessage(TextOf("tests/golden/tiny_models.json"), &all);
  EXPECT_TRUE(read.ok()) << read.ToString();
  v1::ModelSpec model;
  const auto found = all.fields().find(name);
  if (found == all.fields().end()) {
    *model.mutable_options() = SmallMlp();
  } else {
    std::string text;
    EXPECT_TRUE(google::protobuf::util::MessageToJsonString(found->second, &text).ok());
    const auto parsed = JsonStringToMessage(text, &model);
    EXPECT_TRUE(parsed.ok()) << name << ": " << parsed.ToString();
  }
  model.set_name(name);
  return model;
}

// A job of TinyModel, over 5 sparse columns of dim 4 and 3 dense ones.
inline v1::JobSpec TinyJob(const std::string& name) {
  v1::JobSpec spec = Job(name, 5, 3);
  *spec.mutable_model() = TinyModel(name);
  const auto sequence = spec.model().options().fields().find("sequence");
  if (sequence != spec.model().options().fields().end()) {
    v1::ColumnSpec* column = spec.mutable_data()->add_columns();
    column->set_name(sequence->second.string_value());
    column->set_role(v1::SPARSE);
    column->add_table("embedding");
    column->set_separator("|");
    column->set_pooling(v1::SEQUENCE);
    column->set_max_length(4);
  }
  return spec;
}

}  // namespace tessera::worker::testing
