// web/engine/verify_api.cc: compares the kernels with the reference code. Node's engine alone has it.
#include <attn/verify.h>

#include "answer.h"

ATTN_EXPORT(engine_verify) int engine_verify(int quick) {
  return attn::web::answer([&] {
    attn::VerifyOptions options;
    options.quick = quick != 0;
    const attn::VerifyReport report = attn::verify(options);
    return report.digest + (report.passed() ? "" : " " + report.difference);
  });
}
