#pragma once
#include "vendor/half.h"
