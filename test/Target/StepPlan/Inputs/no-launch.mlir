// A module that makes no plan.
module {
}
