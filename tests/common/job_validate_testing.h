#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/job/validate.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

// Jobs that are right, and what is wrong with others.
namespace tessera {

inline v1::JobSpec GoodSpec() {
  v1::JobSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(
        name: "clicks-1"
        data {
          format: CSV
          header: true
          columns { name: "label" role: LABEL }
          columns { name: "price" role: DENSE default_value: "0" transform: LOG1P }
          columns { name: "user" role: SPARSE table: "linear" table: "embedding" }
          columns { name: "tags" role: SPARSE type: STRING table: "embedding" separator: "|" }
          columns { name: "note" role: IGNORED }
          train { files: "train-*.csv" }
          validation { files: "valid.csv" }
        }
        tables {
          name: "linear"
          dim: 1
          initializer { constant {} }
          optimizer {
            learning_rate: 0.1
            ftrl { l1: 1 }
          }
        }
        tables {
          name: "embedding"
          dim: 8
          initializer { normal { stddev: 0.01 } }
          optimizer {
            learning_rate: 0.001
            adam {}
          }
        }
        model {
          name: "deepfm"
          optimizer {
            learning_rate: 0.001
            adam {}
          }
        }
        train { batch_size: 1024 epochs: 2 }
      )pb",
      &spec));
  return spec;
}

inline v1::JobSpec GoodLibsvm() {
  v1::JobSpec spec = GoodSpec();
  spec.mutable_data()->clear_columns();
  spec.mutable_data()->set_format(v1::LIBSVM);
  spec.mutable_data()->set_header(false);
  v1::ColumnSpec* column = spec.mutable_data()->add_columns();
  column->set_name("ids");
  column->set_role(v1::SPARSE);
  column->add_table("linear");
  column->add_table("embedding");
  column->set_index_begin(10);
  column->set_index_end(1000);
  return spec;
}

struct Bad {
  std::function<void(v1::JobSpec&)> edit;
  std::string path;  // the message starts with "path: "
  std::string says;
};

inline void ExpectRefused(const v1::JobSpec& good, const std::vector<Bad>& cases) {
  for (const Bad& bad : cases) {
    v1::JobSpec spec = good;
    bad.edit(spec);
    const absl::Status status = ValidateJobSpec(spec);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad.path;
    EXPECT_THAT(std::string(status.message()), testing::StartsWith(bad.path + ": "));
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(bad.says));
  }
}

}  // namespace tessera
