// web/tests/programs/exceptions.cc: prints what becomes of exceptions; the same lines natively and as WebAssembly.
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Base : std::runtime_error {
  using runtime_error::runtime_error;
};
struct Left {
  virtual ~Left() = default;
  int left = 1;
};
struct Derived : Left, Base {
  explicit Derived(const std::string& text) : Base(text) {}
};
struct Count {
  explicit Count(int& count) : count_(count) { ++count_; }
  Count(const Count& other) : count_(other.count_) { ++count_; }
  Count& operator=(const Count&) = delete;
  ~Count() { --count_; }
  int& count_;
};
struct Said {
  const char* text;
  ~Said() { std::printf("  left %s, in flight %d\n", text, std::uncaught_exceptions()); }
};

int objects = 0;

[[gnu::noinline]] void thrower(int kind) {
  const Said frame{"thrower"};
  switch (kind) {
    case 0: throw Derived("derived");
    case 1: throw 42;
    case 2: throw std::bad_alloc();
    case 3: throw std::string("text");
    case 4: throw static_cast<const char*>("characters");
    case 5: throw Count(objects);
    default: std::printf("  nothing thrown\n");
  }
}

void types() {
  for (int kind = 0; kind < 7; ++kind) {
    try {
      thrower(kind);
    } catch (const Base& error) { std::printf("Base %s\n", error.what()); } catch (int number) {
      std::printf("int %d\n", number);
    } catch (const std::exception&) { std::printf("std::exception\n"); } catch (const char* text) {
      std::printf("const char* %s\n", text);
    } catch (...) { std::printf("something, objects %d\n", objects); }
  }
  std::printf("objects %d\n", objects);
}

void both_bases() {
  try {
    thrower(0);
  } catch (const Left& left) { std::printf("Left %d\n", left.left); }
  try {
    thrower(0);
  } catch (const std::runtime_error& error) { std::printf("runtime_error %s\n", error.what()); }
  try {
    throw std::make_unique<int>(7).release();
  } catch (void* pointer) {
    std::printf("void* %d\n", *static_cast<int*>(pointer));
    delete static_cast<int*>(pointer);
  }
}

void again() {
  try {
    try {
      thrower(0);
    } catch (const std::exception& error) {
      std::printf("inner %s\n", error.what());
      throw;
    }
  } catch (const Derived& error) { std::printf("outer %s\n", error.what()); }
  try {
    try {
      thrower(1);
    } catch (const std::exception&) { std::printf("wrong\n"); }
  } catch (int number) { std::printf("passed through %d\n", number); }
  try {
    try {
      thrower(3);
    } catch (...) {
      try {
        throw;
      } catch (const std::string& text) { std::printf("nested %s\n", text.c_str()); }
      throw std::logic_error("another");
    }
  } catch (const std::logic_error& error) { std::printf("%s\n", error.what()); }
}

void in_a_destructor() {
  struct Catches {
    ~Catches() {
      try {
        thrower(1);
      } catch (int number) { std::printf("caught %d in flight %d\n", number, std::uncaught_exceptions()); }
    }
  };
  try {
    const Catches catches;
    thrower(0);
  } catch (const Base& error) { std::printf("%s in flight %d\n", error.what(), std::uncaught_exceptions()); }
}

void pointers() {
  std::exception_ptr kept, other;
  try {
    thrower(5);
  } catch (...) { kept = std::current_exception(); }
  std::printf("kept, objects %d\n", objects);
  other = kept;
  for (int time = 0; time < 2; ++time) try {
      std::rethrow_exception(kept);
    } catch (const Count& count) { std::printf("thrown again, objects %d\n", count.count_); }
  try {
    try {
      std::rethrow_exception(kept);
    } catch (...) {
      std::printf("same %d\n", std::current_exception() == other);
      throw;
    }
  } catch (const Count&) { std::printf("and once more\n"); }
  kept = nullptr;
  std::printf("one pointer left, objects %d\n", objects);
  other = nullptr;
  std::printf("objects %d, none now %d\n", objects, std::current_exception() == nullptr);
  const std::exception_ptr made = std::make_exception_ptr(Base("made"));
  try {
    std::rethrow_exception(made);
  } catch (const std::exception& error) { std::printf("%s\n", error.what()); }
  try {
    try {
      thrower(0);
    } catch (...) { std::throw_with_nested(std::logic_error("around")); }
  } catch (const std::exception& error) {
    try {
      std::rethrow_if_nested(error);
    } catch (const std::exception& inner) { std::printf("%s %s\n", error.what(), inner.what()); }
  }
}

template <typename Error, typename Call>
void library(const char* name, Call call) {
  try {
    call();
    std::printf("%s: nothing thrown\n", name);
  } catch (const Error&) { std::printf("%s\n", name); }
}

void of_the_library() {
  const std::string text = "text";
  const std::vector<int> three(3);
  library<std::out_of_range>("substr", [&] { return text.substr(9); });
  library<std::out_of_range>("at", [&] { return three.at(7); });
  library<std::invalid_argument>("stoi", [&] { return std::stoi("none"); });
  library<std::out_of_range>("insert", [&] { return std::string(text).insert(9, "x"); });
  volatile std::size_t much = ~std::size_t{0} / 2 - 100;
  library<std::length_error>("reserve", [&] { std::string().reserve(2 * much); });
  library<std::bad_alloc>("new", [&] {
    char* volatile block = new char[much];
    delete[] block;
  });
  library<std::bad_cast>("dynamic_cast", [&] {
    const Base base("b");
    const std::exception& error = base;
    const Derived* volatile cast = &dynamic_cast<const Derived&>(error);
    static_cast<void>(cast);
  });
}

}  // namespace

int main() {
  types();
  both_bases();
  again();
  in_a_destructor();
  pointers();
  of_the_library();
  std::printf("in flight %d\n", std::uncaught_exceptions());
}
