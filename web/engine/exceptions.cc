// web/engine/exceptions.cc: C++ exceptions on those of WebAssembly: the part of the C++ ABI that Debian's libc++abi for
// wasm32 is built without. Source: Itanium C++ ABI, part 2 (exception handling); LLVM's lowering for WebAssembly, which
// calls _Unwind_CallPersonality at a landing pad.
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <typeinfo>

#include "lsda.h"

namespace __cxxabiv1 {
/// The base of all type_infos in libc++abi. Declared for the order of its virtual functions: the fifth compares types.
class __shim_type_info : public std::type_info {
 public:
  ~__shim_type_info() override;
  virtual void noop1() const;
  virtual void noop2() const;
  virtual bool can_catch(const __shim_type_info* thrown, void*& object) const = 0;
};
}  // namespace __cxxabiv1

namespace {

using Type = __cxxabiv1::__shim_type_info;

/// What is known of a thrown object. It lies before the object. An exception_ptr that is thrown again gets a header of
/// its own, without an object, because both may be caught at the same time.
struct alignas(16) Header {
  const Type* type;
  void* (*destroy)(void*);  // destructors return `this` on WebAssembly
  int references;           // of the object: exception_ptrs and headers
  int handlers;             // catch clauses that are entered and not left
  bool rethrown;
  void* caught_as;  // the object as the type of the catch clause that takes it
  Header* owner;    // the header before the object
  Header* caught_before;
};

constinit Header* last_caught = nullptr;
constinit unsigned in_flight = 0;  // thrown and not caught

void* object_of(Header* header) { return header->owner + 1; }
Header* header_of(void* object) { return static_cast<Header*>(object) - 1; }

[[noreturn]] void fly(Header* header) {
  ++in_flight;
  __builtin_wasm_throw(0, header);
}

void* allocate(std::size_t bytes) {
  void* const block = std::calloc(1, bytes);
  if (block == nullptr) std::abort();
  return block;
}

}  // namespace

extern "C" {

void __cxa_decrement_exception_refcount(void* object) noexcept;

// --- throw -----------------------------------------------------------------------------------------------------------

void* __cxa_allocate_exception(std::size_t size) noexcept {
  auto* const header = static_cast<Header*>(allocate(sizeof(Header) + size));
  header->owner = header;
  return header + 1;
}
void __cxa_free_exception(void* object) noexcept { std::free(header_of(object)); }

/// Describes an object that is not thrown yet (std::make_exception_ptr).
__cxxabiv1::__cxa_exception* __cxa_init_primary_exception(void* object, std::type_info* type,
                                                          void* (*destroy)(void*)) noexcept {
  Header* const header = header_of(object);
  header->type = static_cast<const Type*>(type);
  header->destroy = destroy;
  return reinterpret_cast<__cxxabiv1::__cxa_exception*>(header);
}
[[noreturn]] void __cxa_throw(void* object, std::type_info* type, void* (*destroy)(void*)) {
  __cxa_init_primary_exception(object, type, destroy);
  header_of(object)->references = 1;
  fly(header_of(object));
}

[[noreturn]] void __cxa_rethrow() {
  if (last_caught == nullptr) std::terminate();
  last_caught->rethrown = true;
  fly(last_caught);
}

// --- catch -----------------------------------------------------------------------------------------------------------

void* __cxa_get_exception_ptr(void* thrown) noexcept { return static_cast<Header*>(thrown)->caught_as; }

void* __cxa_begin_catch(void* thrown) noexcept {
  auto* const header = static_cast<Header*>(thrown);
  --in_flight;
  header->rethrown = false;
  if (header->handlers++ == 0) {
    header->caught_before = last_caught;
    last_caught = header;
  }
  return header->caught_as != nullptr ? header->caught_as : object_of(header);
}

void __cxa_end_catch() {
  Header* const header = last_caught;
  if (header == nullptr || --header->handlers != 0) return;
  last_caught = header->caught_before;
  if (header->rethrown) return;  // still on its way
  Header* const owner = header->owner;
  if (header != owner) std::free(header);
  __cxa_decrement_exception_refcount(owner + 1);
}

// --- exception_ptr ---------------------------------------------------------------------------------------------------

void __cxa_increment_exception_refcount(void* object) noexcept {
  if (object != nullptr) ++header_of(object)->references;
}
void __cxa_decrement_exception_refcount(void* object) noexcept {
  if (object == nullptr || --header_of(object)->references != 0) return;
  if (header_of(object)->destroy != nullptr) header_of(object)->destroy(object);
  __cxa_free_exception(object);
}
void* __cxa_current_primary_exception() noexcept {
  if (last_caught == nullptr) return nullptr;
  __cxa_increment_exception_refcount(object_of(last_caught));
  return object_of(last_caught);
}
void __cxa_rethrow_primary_exception(void* object) {
  if (object == nullptr) return;
  auto* const header = static_cast<Header*>(allocate(sizeof(Header)));
  header->type = header_of(object)->type;
  header->owner = header_of(object);
  __cxa_increment_exception_refcount(object);
  fly(header);
}
std::type_info* __cxa_current_exception_type() {
  return last_caught == nullptr ? nullptr : const_cast<Type*>(last_caught->type);
}
bool __cxa_uncaught_exception() noexcept { return in_flight != 0; }
unsigned __cxa_uncaught_exceptions() noexcept { return in_flight; }

// --- landing pads ----------------------------------------------------------------------------------------------------

/// What a landing pad and the function below say to each other; LLVM's code writes and reads it by this name.
struct {
  std::size_t landing_pad;  // its number in the function
  const std::uint8_t* lsda;
  std::size_t selector;  // answer: the number of the catch clause, 0 if it has none for this exception
} __wasm_lpad_context;

int _Unwind_CallPersonality(void* thrown) {
  auto* const header = static_cast<Header*>(thrown);
  __wasm_lpad_context.selector = 0;
  const attn::web::Lsda lsda(__wasm_lpad_context.lsda);
  lsda.for_each_clause(__wasm_lpad_context.landing_pad, [&](std::size_t filter, const void* type) {
    void* object = object_of(header);
    if (type != nullptr && !static_cast<const Type*>(type)->can_catch(header->type, object)) return false;
    header->caught_as = object;
    __wasm_lpad_context.selector = filter;
    return true;
  });
  return 0;
}

void _Unwind_DeleteException(void*) {}

[[noreturn]] void __cxa_bad_cast() { throw std::bad_cast(); }
[[noreturn]] void __cxa_bad_typeid() { throw std::bad_typeid(); }
[[noreturn]] void __cxa_throw_bad_array_new_length() { throw std::bad_array_new_length(); }

/// The only thread ends with the program: nothing is to be destroyed before.
int __cxa_thread_atexit(void (*)(void*), void*, void*) noexcept { return 0; }

}  // extern "C"

// --- what libc++ throws ----------------------------------------------------------------------------------------------

/// libc++.a is compiled without exceptions and calls this instead of throwing: with the name of the exception and its
/// text. Its frames have nothing to clean up, so the exception can pass them.
void std::__libcpp_verbose_abort(const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const char* const begin = std::strchr(text, '"');
  char* const end = std::strrchr(text, '"');
  if (begin == nullptr || begin == end) std::abort();
  *end = '\0';
  const char* const words = begin + 1;
  if (std::strstr(text, "out_of_range was thrown") != nullptr) throw std::out_of_range(words);
  if (std::strstr(text, "length_error was thrown") != nullptr) throw std::length_error(words);
  if (std::strstr(text, "invalid_argument was thrown") != nullptr) throw std::invalid_argument(words);
  std::abort();
}

// --- operator new ----------------------------------------------------------------------------------------------------

void* operator new(std::size_t bytes) {
  if (void* const block = std::malloc(bytes == 0 ? 1 : bytes)) return block;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  const auto unit = static_cast<std::size_t>(alignment);
  const std::size_t whole = (bytes + unit - 1) / unit * unit;
  if (whole >= bytes)
    if (void* const block = std::aligned_alloc(unit, whole == 0 ? unit : whole)) return block;
  throw std::bad_alloc();
}
void* operator new[](std::size_t bytes) { return ::operator new(bytes); }
void* operator new[](std::size_t bytes, std::align_val_t alignment) { return ::operator new(bytes, alignment); }
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }
void operator delete(void* block, std::align_val_t) noexcept { std::free(block); }
void operator delete(void* block, std::size_t, std::align_val_t) noexcept { std::free(block); }
void operator delete[](void* block) noexcept { std::free(block); }
void operator delete[](void* block, std::size_t) noexcept { std::free(block); }
void operator delete[](void* block, std::align_val_t) noexcept { std::free(block); }
void operator delete[](void* block, std::size_t, std::align_val_t) noexcept { std::free(block); }
