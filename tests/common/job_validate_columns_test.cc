// What ValidateJobSpec says of missing labels.
#include "tests/common/job_validate_testing.h"

namespace tessera {
namespace {

v1::ColumnSpec* ColumnOf(v1::JobSpec& spec, int i) {
  return spec.mutable_data()->mutable_columns(i);
}

TEST(ValidateColumns, TakesWhatStandsForNoLabel) {
  v1::JobSpec spec = GoodSpec();
  for (const char* value : {"", "nan", "NaN", "-1", "none"}) {
    ColumnOf(spec, 0)->set_missing_value(value);
    EXPECT_EQ(ValidateJobSpec(spec), absl::OkStatus()) << value;
  }
  // 0 is no label of two classes, but may stand for none of others.
  ColumnOf(spec, 0)->set_missing_value("0");
  EXPECT_NE(ValidateJobSpec(spec), absl::OkStatus());
  spec.mutable_model()->set_loss(v1::MEAN_SQUARED_ERROR);
  EXPECT_EQ(ValidateJobSpec(spec), absl::OkStatus());
}

TEST(ValidateColumns, NamesTheWrongMarker) {
  ExpectRefused(
      GoodSpec(),
      {
          {[](auto& s) { ColumnOf(s, 1)->set_missing_value("nan"); },
           "data.columns[1].missing_value",
           "belongs to label columns, and the role of 'price' is dense"},
          {[](auto& s) {
             ColumnOf(s, 0)->set_missing_value("");
             ColumnOf(s, 0)->set_default_value("0");
           },
           "data.columns[0].missing_value", "leave one of both out"},
          {[](auto& s) { ColumnOf(s, 0)->set_missing_value("1.0"); },
           "data.columns[0].missing_value", "found '1.0', which is one of the labels 0 and 1"},
      });
}

// GoodLibsvm with a label that may be missing.
v1::JobSpec GoodLabel() {
  v1::JobSpec spec = GoodLibsvm();
  v1::ColumnSpec* const label = spec.mutable_data()->add_columns();
  label->set_name("relevance");
  label->set_role(v1::LABEL);
  label->set_missing_value("nan");
  return spec;
}

TEST(ValidateColumns, NamesWhatLibsvmHasNot) {
  ExpectRefused(
      GoodLabel(),
      {
          {[](auto& s) { ColumnOf(s, 1)->set_missing_value(""); }, "data.columns[1].missing_value",
           "libsvm files have no empty labels"},
          {[](auto& s) { ColumnOf(s, 1)->set_missing_value("not known"); },
           "data.columns[1].missing_value", "expected the word"},
      });
}

}  // namespace
}  // namespace tessera
