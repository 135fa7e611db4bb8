// src/runtime/trace.cc: writes trace lines and notices; the only file that may write to stderr, if ATTN_TRACE or
// set_trace requests it.
#include "runtime/trace.h"

#include <attn/runtime.h>

#include "runtime/environment.h"
#include "runtime/fork.h"
#include "runtime/once.h"

#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace attn {
namespace runtime {
namespace {

enum class Tracing : int { unknown, off, on };
std::atomic<Tracing> tracing{Tracing::unknown};

constinit std::mutex one_message;
const FreeInChild<one_message> messages_of_child;

/// Returns the handler. It is never destroyed, because destructors of the host's statics may still trace.
MessageHandler& the_handler() {
  constinit static Once<std::unique_ptr<MessageHandler>> only;
  return *only.get([] { return std::make_unique<MessageHandler>(); });
}

void tell(MessageKind kind, std::string_view text) {
  const std::lock_guard guard(one_message);
  if (const MessageHandler& handler = the_handler()) return handler(kind, text);
  if (kind == MessageKind::notice) return;
  // Written by one call, so that lines of several processes do not mix.
  std::string line(text);
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

bool trace_enabled() {
  Tracing now = tracing.load(std::memory_order_relaxed);
  if (now == Tracing::unknown) {
    const Tracing asked = environment_flag("ATTN_TRACE") ? Tracing::on : Tracing::off;
    if (tracing.compare_exchange_strong(now, asked, std::memory_order_relaxed)) now = asked;
  }
  return now == Tracing::on;
}

void trace(std::string_view line) { tell(MessageKind::trace, line); }

void NoticeOnce::operator()(std::string_view text) {
  if (!given_.exchange(true, std::memory_order_relaxed)) tell(MessageKind::notice, text);
}

}  // namespace runtime

MessageHandler set_message_handler(MessageHandler handler) {
  const std::lock_guard guard(runtime::one_message);
  return std::exchange(runtime::the_handler(), std::move(handler));
}

void set_trace(bool on) {
  runtime::tracing.store(on ? runtime::Tracing::on : runtime::Tracing::off, std::memory_order_relaxed);
}

}  // namespace attn
