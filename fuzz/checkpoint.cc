// fuzz/checkpoint.cc: resumes training from a train_state.safetensors: it must continue like the trainer that saved it,
// or fail with a reason.
#include "folder.h"
#include "fuzz.h"

using namespace attn;
using namespace attn::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder;
  folder.write("train_state.safetensors", data, size);
  std::vector<std::int64_t> ids(40);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i * i % 5);
  answers([&] { (void)Trainer::find(folder.path()); });
  answers([&] {
    Trainer trainer = Trainer::resume(folder.path(), ids);
    const auto found = Trainer::find(folder.path());
    const bool same = found && found->first == trainer.options() && found->second == trainer.step();
    check(same, "find and resume disagree");
    (void)loss_curve_svg(trainer, "fuzz");
    trainer.save(folder.path());
    if (trainer.done() || trainer.options().batch > 4) return;
    double loss = 0, again = 0;
    const bool goes_on = answers([&] { loss = trainer.advance().loss; });
    Trainer other = Trainer::resume(folder.path(), ids);  // this also restores the global generator
    check(other.options() == trainer.options(), "saved and resumed it is another training");
    check(goes_on == answers([&] { again = other.advance().loss; }), "saved and resumed it does not go on");
    check(loss == again, "saved and resumed it takes another step");
  });
  return 0;
}
