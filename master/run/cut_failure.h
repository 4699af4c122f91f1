#pragma once

#include "master/actions/action.h"

namespace tessera::master {

// Why a checkpoint could not be cut or written, by what that says of the rows of the ps.
enum class CutFailure {
  kShardFailed,  // a ps has failed itself, and its push log with it: no log brings its rows back
  kDropped,      // a ps no longer has the job: its rows are gone unless a log or a checkpoint
                 // brings them back
  kNotReached,   // a ps may still have its rows; its heartbeats tell whether it lives
  kDisk,         // all ps have their rows: a disk is full or fails
};

// `ps_lost`: a ps was lost between the checkpoint's cut and its failure. `none_lost`: no ps is lost
// now. A lost ps is known before its calls fail.
CutFailure Classify(const ActionResult& result, bool ps_lost, bool none_lost);

}  // namespace tessera::master
