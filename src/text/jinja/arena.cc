#include "text/jinja/arena.h"

#include <fmt/format.h>

namespace quire::jinja {

void fail(const std::string& reason) { throw Failure(reason); }

void Arena::fail_steps() const { fail(fmt::format("the template needs more than {} steps", max_steps_)); }

void Arena::fail_memory() { fail(fmt::format("the template's values need more than {} MiB", kMaxBytes >> 20)); }

void Arena::adopt(HeapObject* object) {
  object->arena_ = this;
  object->next_ = live_;
  if (live_) live_->previous_ = object;
  live_ = object;
}

void Arena::unlink(HeapObject* object) {
  (object->previous_ ? object->previous_->next_ : live_) = object->next_;
  if (object->next_) object->next_->previous_ = object->previous_;
}

void Arena::destroy(HeapObject* object) {
  unlink(object);
  live_bytes_ -= object->bytes_;
  object->next_ = dead_;
  dead_ = object;
  if (destroying_) return;
  destroying_ = true;
  while (dead_) {
    HeapObject* next = dead_;
    dead_ = next->next_;
    delete next;
  }
  destroying_ = false;
}

Arena::~Arena() {
  // What is left refers to each other in cycles, or was made and never referred to.
  for (HeapObject* object = live_; object; object = object->next_) object->retain();
  for (HeapObject* object = live_; object; object = object->next_) object->clear();
  while (live_) {
    HeapObject* next = live_;
    live_ = next->next_;
    delete next;
  }
}

}  // namespace quire::jinja
