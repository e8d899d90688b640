! @FILE@.f90: the model @ID@ in Fortran 2008.
! It is linked with @FILE@.o, .a or .so, and compiled by the compiler of the program.
!
!     use @ID@
!     type(@ID@_trainer) :: model
!     real(c_float), pointer :: x(:,:)
!     real(c_double) :: loss
!     call model%open()
!     call model%values(amos_inputs, 'x', x)
!     x = ...
!     call model%step(loss)
!     call model%close()
!
! Arrays: pointers to the model's memory, valid until close(). Their shape is that in the model file with the dimensions
! reversed: an input of shape [batch, 4] is x(4, batch). A pointer of rank 1 views an array of any rank.
! Errors: with the optional argument `status`, an amos_status, a failed call returns, and model%error() says what is wrong;
! without it, the program prints that and stops.
! MPI: a block of gradients is one contiguous array: MPI_Allreduce(MPI_IN_PLACE, g, size(g), MPI_REAL, MPI_SUM, ...).
! Threads: one at a time uses an instance. Instances are not assigned: a copy would share the memory.
! Two models in one program: use second, only: second_trainer
module @ID@
  use, intrinsic :: iso_c_binding, only: c_associated, c_bool, c_char, c_double, c_f_pointer, c_float, &
    c_funloc, c_funptr, c_int, c_int8_t, c_int32_t, c_int64_t, c_loc, c_null_char, c_null_funptr, &
    c_null_ptr, c_ptr, c_size_t
  use, intrinsic :: iso_fortran_env, only: error_unit
  implicit none
  private
  public :: @ID@_trainer, @ID@_command, amos_body, amos_parallel_for, amos_progress, amos_show
  public :: c_float, c_double, c_int, c_int8_t, c_int32_t, c_int64_t, c_ptr, c_funptr, c_loc, c_null_ptr

  ! amos_status, and amos_kind of arrays: see amos.h.
  integer(c_int), parameter, public :: amos_done = 0, amos_input = 1, amos_usage = 2, amos_machine = 3
  integer(c_int), parameter, public :: amos_inputs = 0, amos_outputs = 1, amos_parameters = 2, amos_gradients = 3, &
    amos_frozen = 4, amos_buffers = 5, amos_state = 6
  integer(c_int), parameter :: amos_f64 = 0, amos_f32 = 1, amos_i64 = 4, amos_i32 = 5, amos_i8 = 7, amos_u8 = 11, amos_bool = 12

  type @ID@_trainer
    private
    type(c_ptr) :: m = c_null_ptr
    character(:), allocatable :: text
  contains
    procedure :: open => @ID@_open       ! (threads, seed, parallel_for, status), all optional
    procedure :: close => @ID@_close
    procedure :: error => @ID@_error     ! text of the last call that failed
    procedure :: forward => @ID@_forward
    procedure :: evaluate => @ID@_evaluate
    procedure :: step => @ID@_step
    procedure :: gradient => @ID@_gradient
    procedure :: update => @ID@_update
    procedure :: fit => @ID@_fit         ! (options, progress, context, status): trains on files
    procedure :: steps => @ID@_steps
    procedure :: set_batch => @ID@_set_batch ! samples of forward and evaluate; 0: the largest batch
    procedure :: rate => @ID@_rate       ! the factor of the step size, 1 at first
    procedure :: set_rate => @ID@_set_rate
    procedure :: set_steps => @ID@_set_steps ! the number of updates of the run, for schedules
    procedure :: metric => @ID@_metric   ! NaN: there is none
    procedure :: save => @ID@_save
    procedure :: load => @ID@_load
    procedure :: store => @ID@_store     ! a checkpoint, as bytes
    procedure :: restore => @ID@_restore
    procedure :: export_onnx => @ID@_export_onnx ! the trained model
    procedure :: onnx => @ID@_onnx       ! the same, as bytes
    procedure :: count => @ID@_count     ! of arrays of a kind
    procedure :: name => @ID@_name       ! of array i of a kind, from 1
    procedure :: shape => @ID@_shape     ! of an array, reversed; empty: there is none
    ! (name, address, status): where calls read an input, of its type and size, at a multiple of 64
    ! bytes; it stays until another setting or close(). c_null_ptr: the model's own
    procedure :: set_input => @ID@_set_input
    procedure :: output_shape => @ID@_output_shape ! of an output in the last call, reversed
    procedure :: block => @ID@_block     ! all parameters, gradients or state
    ! (kind, name, pointer, status)
    generic :: values => real32_1, real32_2, real32_3, real32_4, real64_1, real64_2, int64_1, int64_2, &
      int32_1, int32_2, int8_1
    procedure, private :: real32_1 => @ID@_real32_1
    procedure, private :: real32_2 => @ID@_real32_2
    procedure, private :: real32_3 => @ID@_real32_3
    procedure, private :: real32_4 => @ID@_real32_4
    procedure, private :: real64_1 => @ID@_real64_1
    procedure, private :: real64_2 => @ID@_real64_2
    procedure, private :: int64_1 => @ID@_int64_1
    procedure, private :: int64_2 => @ID@_int64_2
    procedure, private :: int32_1 => @ID@_int32_1
    procedure, private :: int32_2 => @ID@_int32_2
    procedure, private :: int8_1 => @ID@_int8_1
  end type

  type, bind(c) :: @ID@_setup
    integer(c_size_t) :: size
    integer(c_int64_t) :: threads, seed
    type(c_funptr) :: weights, parallel_for
    type(c_ptr) :: context
  end type

  ! How a training stands. NaN: there is none.
  type, bind(c) :: amos_progress
    integer(c_size_t) :: size
    integer(c_int64_t) :: step, steps ! updates made, and in all
    real(c_double) :: loss, accuracy  ! of the batches since the last call
    real(c_double) :: eval_loss, eval_accuracy ! of the last evaluation of held-out data
    real(c_double) :: epochs, samples_per_s, seconds
  end type

  type, bind(c) :: @ID@_training
    integer(c_size_t) :: size
    type(c_ptr) :: options
    type(c_funptr) :: progress
    type(c_ptr) :: context
  end type

  abstract interface
    ! Is called while fit() trains. Returns other than 0 to stop.
    integer(c_int) function amos_show(context, now) bind(c)
      import
      type(c_ptr), value :: context
      type(amos_progress), intent(in) :: now
    end function
    ! Calls body(task, i, thread), an amos_body, for each i in [0, n): see amos.h, and c_f_procpointer.
    subroutine amos_parallel_for(context, n, body, task) bind(c)
      import
      type(c_ptr), value :: context, task
      integer(c_int64_t), value :: n
      type(c_funptr), value :: body
    end subroutine
    subroutine amos_body(task, i, thread) bind(c)
      import
      type(c_ptr), value :: task
      integer(c_int64_t), value :: i, thread
    end subroutine
  end interface

  interface
    ! The model, which is data: a variable that is bound to C would be defined here, not only declared.
    subroutine @ID@_model() bind(c, name='@ID@_model')
    end subroutine
    integer(c_int) function amos_open(model, setup, to) bind(c)
      import
      type(c_funptr), value :: model
      type(@ID@_setup), intent(in) :: setup
      type(c_ptr), intent(out) :: to
    end function
    subroutine amos_close(m) bind(c)
      import
      type(c_ptr), value :: m
    end subroutine
    type(c_ptr) function amos_error() bind(c)
      import
    end function
    integer(c_int64_t) function amos_count(m, kind) bind(c)
      import
      type(c_ptr), value :: m
      integer(c_int), value :: kind
    end function
    integer(c_int64_t) function amos_find(m, kind, name) bind(c)
      import
      type(c_ptr), value :: m
      integer(c_int), value :: kind
      character(kind=c_char), intent(in) :: name(*)
    end function
    type(c_ptr) function amos_name(m, kind, i) bind(c)
      import
      type(c_ptr), value :: m
      integer(c_int), value :: kind
      integer(c_int64_t), value :: i
    end function
    integer(c_int) function amos_type(m, kind, i) bind(c)
      import
      type(c_ptr), value :: m
      integer(c_int), value :: kind
      integer(c_int64_t), value :: i
    end function
    integer(c_int64_t) function amos_rank(m, kind, i) bind(c)
      import
      type(c_ptr), value :: m
      integer(c_int), value :: kind
      integer(c_int64_t), value :: i
    end function
    type(c_ptr) function amos_shape(m, kind, i) bind(c)
      import
      type(c_ptr), value :: m
      integer(c_int), value :: kind
      integer(c_int64_t), value :: i
    end function
    type(c_ptr) function amos_values(m, kind, i) bind(c)
      import
      type(c_ptr), value :: m
      integer(c_int), value :: kind
      integer(c_int64_t), value :: i
    end function
    type(c_ptr) function amos_block(m, kind, bytes) bind(c)
      import
      type(c_ptr), value :: m
      integer(c_int), value :: kind
      integer(c_int64_t), intent(out) :: bytes
    end function
    integer(c_int) function amos_set_input(m, i, values) bind(c)
      import
      type(c_ptr), value :: m
      integer(c_int64_t), value :: i
      type(c_ptr), value :: values
    end function
    subroutine amos_output_shape(m, i, shape) bind(c)
      import
      type(c_ptr), value :: m
      integer(c_int64_t), value :: i
      integer(c_int64_t), intent(out) :: shape(*)
    end subroutine
    integer(c_int) function amos_forward(m) bind(c)
      import
      type(c_ptr), value :: m
    end function
    integer(c_int) function amos_evaluate(m, loss) bind(c)
      import
      type(c_ptr), value :: m
      real(c_double), intent(out) :: loss
    end function
    integer(c_int) function amos_step(m, loss) bind(c)
      import
      type(c_ptr), value :: m
      real(c_double), intent(out) :: loss
    end function
    integer(c_int) function amos_gradient(m, loss) bind(c)
      import
      type(c_ptr), value :: m
      real(c_double), intent(out) :: loss
    end function
    integer(c_int) function amos_update(m) bind(c)
      import
      type(c_ptr), value :: m
    end function
    integer(c_int) function amos_fit(m, training) bind(c)
      import
      type(c_ptr), value :: m
      type(@ID@_training), intent(in) :: training
    end function
    integer(c_int) function amos_main(model, argc, argv) bind(c)
      import
      type(c_funptr), value :: model
      integer(c_int), value :: argc
      type(c_ptr), intent(in) :: argv(*)
    end function
    integer(c_int64_t) function amos_steps(m) bind(c)
      import
      type(c_ptr), value :: m
    end function
    real(c_double) function amos_rate(m) bind(c)
      import
      type(c_ptr), value :: m
    end function
    integer(c_int) function amos_set_rate(m, factor) bind(c)
      import
      type(c_ptr), value :: m
      real(c_double), value :: factor
    end function
    integer(c_int) function amos_set_steps(m, n) bind(c)
      import
      type(c_ptr), value :: m
      integer(c_int64_t), value :: n
    end function
    integer(c_int) function amos_set_batch(m, n) bind(c)
      import
      type(c_ptr), value :: m
      integer(c_int64_t), value :: n
    end function
    real(c_double) function amos_metric(m, name) bind(c)
      import
      type(c_ptr), value :: m
      character(kind=c_char), intent(in) :: name(*)
    end function
    integer(c_int) function amos_save(m, path) bind(c)
      import
      type(c_ptr), value :: m
      character(kind=c_char), intent(in) :: path(*)
    end function
    integer(c_int) function amos_load(m, path) bind(c)
      import
      type(c_ptr), value :: m
      character(kind=c_char), intent(in) :: path(*)
    end function
    integer(c_int64_t) function amos_checkpoint_bytes(m) bind(c)
      import
      type(c_ptr), value :: m
    end function
    integer(c_int) function amos_store(m, to, bytes) bind(c)
      import
      type(c_ptr), value :: m
      integer(c_int8_t), intent(out) :: to(*)
      integer(c_int64_t), value :: bytes
    end function
    integer(c_int) function amos_restore(m, from, bytes) bind(c)
      import
      type(c_ptr), value :: m
      integer(c_int8_t), intent(in) :: from(*)
      integer(c_int64_t), value :: bytes
    end function
    integer(c_int) function amos_export_onnx(m, path) bind(c)
      import
      type(c_ptr), value :: m
      character(kind=c_char), intent(in) :: path(*)
    end function
    integer(c_int64_t) function amos_onnx_bytes(m) bind(c)
      import
      type(c_ptr), value :: m
    end function
    integer(c_int) function amos_store_onnx(m, to, bytes) bind(c)
      import
      type(c_ptr), value :: m
      integer(c_int8_t), intent(out) :: to(*)
      integer(c_int64_t), value :: bytes
    end function
    integer(c_size_t) function c_strlen(text) bind(c, name='strlen')
      import
      type(c_ptr), value :: text
    end function
  end interface

contains

  function @ID@_string(from) result(to)
    type(c_ptr), intent(in) :: from
    character(:), allocatable :: to
    character(kind=c_char), pointer :: letters(:)
    integer :: i
    call c_f_pointer(from, letters, [c_strlen(from)])
    allocate (character(size(letters)) :: to)
    do i = 1, size(letters)
      to(i:i) = letters(i)
    end do
  end function

  ! Writes the words as C strings, without blanks at their ends, and lists their addresses up to a null.
  subroutine @ID@_c_words(words, letters, list)
    character(*), intent(in) :: words(:)
    character(kind=c_char), allocatable, target, intent(out) :: letters(:,:)
    type(c_ptr), allocatable, intent(out) :: list(:)
    integer :: i, k
    allocate (letters(len(words) + 1, size(words)), list(size(words) + 1))
    letters = c_null_char
    list = c_null_ptr
    do i = 1, size(words)
      do k = 1, len_trim(words(i))
        letters(k, i) = words(i)(k:k)
      end do
      list(i) = c_loc(letters(1, i))
    end do
  end subroutine

  ! Runs the trainer as a command, which prints and may exit, with these words; the first is its name. Returns
  ! the exit status.
  integer function @ID@_command(words) result(status)
    character(*), intent(in) :: words(:)
    character(kind=c_char), allocatable, target :: letters(:,:)
    type(c_ptr), allocatable :: list(:)
    call @ID@_c_words(words, letters, list)
    status = int(amos_main(c_funloc(@ID@_model), int(size(words), c_int), list))
  end function

  ! Ends a call: sets status, or stops the program if there is none and the call failed.
  subroutine @ID@_end(model, code, status, text)
    class(@ID@_trainer), intent(inout) :: model
    integer(c_int), intent(in) :: code
    integer, intent(out), optional :: status
    character(*), intent(in), optional :: text
    if (present(status)) status = int(code)
    if (code == amos_done) return
    if (present(text)) then
      model%text = text
    else
      model%text = @ID@_string(amos_error())
    end if
    if (present(status)) return
    write (error_unit, '(a)') model%text
    error stop 1
  end subroutine

  logical function @ID@_is_closed(model, status) result(is)
    class(@ID@_trainer), intent(inout) :: model
    integer, intent(out), optional :: status
    is = .not. c_associated(model%m)
    if (is) call @ID@_end(model, amos_usage, status, 'this model is not open')
  end function

  subroutine @ID@_open(model, threads, seed, parallel_for, status)
    class(@ID@_trainer), intent(inout) :: model
    integer, intent(in), optional :: threads, seed
    procedure(amos_parallel_for), optional :: parallel_for
    integer, intent(out), optional :: status
    type(@ID@_setup) :: setup
    integer(c_int) :: code
    call model%close()
    setup = @ID@_setup(storage_size(setup) / 8, 0, 0, c_null_funptr, c_null_funptr, c_null_ptr)
    if (present(threads)) setup%threads = threads
    if (present(seed)) setup%seed = seed
    if (present(parallel_for)) setup%parallel_for = c_funloc(parallel_for)
    code = amos_open(c_funloc(@ID@_model), setup, model%m)
    call @ID@_end(model, code, status)
  end subroutine

  subroutine @ID@_close(model)
    class(@ID@_trainer), intent(inout) :: model
    call amos_close(model%m)
    model%m = c_null_ptr
  end subroutine

  function @ID@_error(model) result(text)
    class(@ID@_trainer), intent(in) :: model
    character(:), allocatable :: text
    text = ''
    if (allocated(model%text)) text = model%text
  end function

  subroutine @ID@_forward(model, status)
    class(@ID@_trainer), intent(inout) :: model
    integer, intent(out), optional :: status
    if (@ID@_is_closed(model, status)) return
    call @ID@_end(model, amos_forward(model%m), status)
  end subroutine

  subroutine @ID@_evaluate(model, loss, status)
    class(@ID@_trainer), intent(inout) :: model
    real(c_double), intent(out) :: loss
    integer, intent(out), optional :: status
    loss = 0
    if (@ID@_is_closed(model, status)) return
    call @ID@_end(model, amos_evaluate(model%m, loss), status)
  end subroutine

  subroutine @ID@_step(model, loss, status)
    class(@ID@_trainer), intent(inout) :: model
    real(c_double), intent(out) :: loss
    integer, intent(out), optional :: status
    loss = 0
    if (@ID@_is_closed(model, status)) return
    call @ID@_end(model, amos_step(model%m, loss), status)
  end subroutine

  subroutine @ID@_gradient(model, loss, status)
    class(@ID@_trainer), intent(inout) :: model
    real(c_double), intent(out) :: loss
    integer, intent(out), optional :: status
    loss = 0
    if (@ID@_is_closed(model, status)) return
    call @ID@_end(model, amos_gradient(model%m, loss), status)
  end subroutine

  subroutine @ID@_update(model, status)
    class(@ID@_trainer), intent(inout) :: model
    integer, intent(out), optional :: status
    if (@ID@_is_closed(model, status)) return
    call @ID@_end(model, amos_update(model%m), status)
  end subroutine

  ! Trains on files. `options`: names and values, ['data     ', 'train.npz', 'epochs   ', '3        '].
  subroutine @ID@_fit(model, options, progress, context, status)
    class(@ID@_trainer), intent(inout) :: model
    character(*), intent(in) :: options(:)
    procedure(amos_show), optional :: progress
    type(c_ptr), intent(in), optional :: context
    integer, intent(out), optional :: status
    character(kind=c_char), allocatable, target :: letters(:,:)
    type(c_ptr), allocatable, target :: list(:)
    type(@ID@_training) :: training
    if (@ID@_is_closed(model, status)) return
    call @ID@_c_words(options, letters, list)
    training = @ID@_training(storage_size(training) / 8, c_loc(list), c_null_funptr, c_null_ptr)
    if (present(progress)) training%progress = c_funloc(progress)
    if (present(context)) training%context = context
    call @ID@_end(model, amos_fit(model%m, training), status)
  end subroutine

  integer(c_int64_t) function @ID@_steps(model) result(steps)
    class(@ID@_trainer), intent(inout) :: model
    steps = 0
    if (.not. @ID@_is_closed(model)) steps = amos_steps(model%m)
  end function

  real(c_double) function @ID@_rate(model) result(rate)
    class(@ID@_trainer), intent(inout) :: model
    rate = 0
    if (.not. @ID@_is_closed(model)) rate = amos_rate(model%m)
  end function

  subroutine @ID@_set_rate(model, factor, status)
    class(@ID@_trainer), intent(inout) :: model
    real(c_double), intent(in) :: factor
    integer, intent(out), optional :: status
    if (@ID@_is_closed(model, status)) return
    call @ID@_end(model, amos_set_rate(model%m, factor), status)
  end subroutine

  subroutine @ID@_set_steps(model, n, status)
    class(@ID@_trainer), intent(inout) :: model
    integer(c_int64_t), intent(in) :: n
    integer, intent(out), optional :: status
    if (@ID@_is_closed(model, status)) return
    call @ID@_end(model, amos_set_steps(model%m, n), status)
  end subroutine

  subroutine @ID@_set_batch(model, samples, status)
    class(@ID@_trainer), intent(inout) :: model
    integer, intent(in) :: samples
    integer, intent(out), optional :: status
    if (@ID@_is_closed(model, status)) return
    call @ID@_end(model, amos_set_batch(model%m, int(samples, c_int64_t)), status)
  end subroutine

  real(c_double) function @ID@_metric(model, name) result(metric)
    class(@ID@_trainer), intent(inout) :: model
    character(*), intent(in) :: name
    metric = 0
    if (.not. @ID@_is_closed(model)) metric = amos_metric(model%m, trim(name) // c_null_char)
  end function

  subroutine @ID@_save(model, path, status)
    class(@ID@_trainer), intent(inout) :: model
    character(*), intent(in) :: path
    integer, intent(out), optional :: status
    if (@ID@_is_closed(model, status)) return
    call @ID@_end(model, amos_save(model%m, trim(path) // c_null_char), status)
  end subroutine

  subroutine @ID@_load(model, path, status)
    class(@ID@_trainer), intent(inout) :: model
    character(*), intent(in) :: path
    integer, intent(out), optional :: status
    if (@ID@_is_closed(model, status)) return
    call @ID@_end(model, amos_load(model%m, trim(path) // c_null_char), status)
  end subroutine

  subroutine @ID@_store(model, to, status)
    class(@ID@_trainer), intent(inout) :: model
    integer(c_int8_t), allocatable, intent(out) :: to(:)
    integer, intent(out), optional :: status
    if (@ID@_is_closed(model, status)) return
    allocate (to(amos_checkpoint_bytes(model%m)))
    call @ID@_end(model, amos_store(model%m, to, size(to, kind=c_int64_t)), status)
  end subroutine

  subroutine @ID@_restore(model, from, status)
    class(@ID@_trainer), intent(inout) :: model
    integer(c_int8_t), contiguous, intent(in) :: from(:)
    integer, intent(out), optional :: status
    if (@ID@_is_closed(model, status)) return
    call @ID@_end(model, amos_restore(model%m, from, size(from, kind=c_int64_t)), status)
  end subroutine

  subroutine @ID@_export_onnx(model, path, status)
    class(@ID@_trainer), intent(inout) :: model
    character(*), intent(in) :: path
    integer, intent(out), optional :: status
    if (@ID@_is_closed(model, status)) return
    call @ID@_end(model, amos_export_onnx(model%m, trim(path) // c_null_char), status)
  end subroutine

  subroutine @ID@_onnx(model, to, status)
    class(@ID@_trainer), intent(inout) :: model
    integer(c_int8_t), allocatable, intent(out) :: to(:)
    integer, intent(out), optional :: status
    if (@ID@_is_closed(model, status)) return
    allocate (to(amos_onnx_bytes(model%m)))
    call @ID@_end(model, amos_store_onnx(model%m, to, size(to, kind=c_int64_t)), status)
  end subroutine

  integer function @ID@_count(model, kind) result(count)
    class(@ID@_trainer), intent(inout) :: model
    integer(c_int), intent(in) :: kind
    count = 0
    if (.not. @ID@_is_closed(model)) count = int(amos_count(model%m, kind))
  end function

  function @ID@_name(model, kind, i) result(name)
    class(@ID@_trainer), intent(inout) :: model
    integer(c_int), intent(in) :: kind
    integer, intent(in) :: i
    character(:), allocatable :: name
    integer :: count
    name = ''
    count = model%count(kind)
    if (i >= 1 .and. i <= count) name = @ID@_string(amos_name(model%m, kind, int(i - 1, c_int64_t)))
  end function

  ! Returns the number of an array in amos.h, -1 if there is none.
  integer(c_int64_t) function @ID@_find(model, kind, name) result(i)
    class(@ID@_trainer), intent(inout) :: model
    integer(c_int), intent(in) :: kind
    character(*), intent(in) :: name
    i = amos_find(model%m, kind, trim(name) // c_null_char)
  end function

  function @ID@_shape(model, kind, name) result(shape)
    class(@ID@_trainer), intent(inout) :: model
    integer(c_int), intent(in) :: kind
    character(*), intent(in) :: name
    integer(c_int64_t), allocatable :: shape(:)
    integer(c_int64_t), pointer :: sizes(:)
    integer(c_int64_t) :: i
    allocate (shape(0))
    if (@ID@_is_closed(model)) return
    i = @ID@_find(model, kind, name)
    if (i < 0) return
    call c_f_pointer(amos_shape(model%m, kind, i), sizes, [amos_rank(model%m, kind, i)])
    shape = sizes(size(sizes):1:-1)
  end function

  subroutine @ID@_set_input(model, name, values, status)
    class(@ID@_trainer), intent(inout) :: model
    character(*), intent(in) :: name
    type(c_ptr), intent(in) :: values
    integer, intent(out), optional :: status
    integer(c_int64_t) :: i
    if (@ID@_is_closed(model, status)) return
    i = @ID@_find(model, amos_inputs, name)
    if (i < 0) then
      call @ID@_end(model, amos_input, status, "no input '" // trim(name) // "'")
    else
      call @ID@_end(model, amos_set_input(model%m, i, values), status)
    end if
  end subroutine

  function @ID@_output_shape(model, name) result(shape)
    class(@ID@_trainer), intent(inout) :: model
    character(*), intent(in) :: name
    integer(c_int64_t), allocatable :: shape(:)
    shape = model%shape(amos_outputs, name)
    if (size(shape) == 0) return
    call amos_output_shape(model%m, @ID@_find(model, amos_outputs, name), shape)
    shape = shape(size(shape):1:-1)
  end function

  subroutine @ID@_block(model, kind, to, status)
    class(@ID@_trainer), intent(inout) :: model
    integer(c_int), intent(in) :: kind
    real(c_float), pointer, intent(out) :: to(:)
    integer, intent(out), optional :: status
    integer(c_int64_t) :: bytes
    type(c_ptr) :: address
    nullify (to)
    if (@ID@_is_closed(model, status)) return
    address = amos_block(model%m, kind, bytes)
    if (c_associated(address)) then
      call c_f_pointer(address, to, [bytes / 4])
      call @ID@_end(model, amos_done, status)
    else
      call @ID@_end(model, amos_input, status, 'expected amos_parameters, amos_gradients or amos_state')
    end if
  end subroutine

  ! Finds an array of one of these types. `rank` 1: its shape is that of a flat view. Null if the call fails.
  subroutine @ID@_locate(model, kind, name, types, rank, address, shape, status)
    class(@ID@_trainer), intent(inout) :: model
    integer(c_int), intent(in) :: kind, types(:)
    integer, intent(in) :: rank
    character(*), intent(in) :: name
    type(c_ptr), intent(out) :: address
    integer(c_int64_t), allocatable, intent(out) :: shape(:)
    integer, intent(out), optional :: status
    integer(c_int64_t) :: i
    address = c_null_ptr
    if (@ID@_is_closed(model, status)) return
    i = @ID@_find(model, kind, name)
    if (i < 0) then
      call @ID@_end(model, amos_input, status, "no array '" // trim(name) // "' of this kind")
      return
    end if
    shape = model%shape(kind, name)
    if (rank == 1) shape = [product(shape)]
    if (all(types /= amos_type(model%m, kind, i)) .or. size(shape) /= rank) then
      call @ID@_end(model, amos_input, status, "'" // trim(name) // "' has another type or rank")
      return
    end if
    address = amos_values(model%m, kind, i)
    if (c_associated(address)) then
      call @ID@_end(model, amos_done, status)
    else
      call @ID@_end(model, amos_input, status, "'" // trim(name) // "' has no gradient")
    end if
  end subroutine

  subroutine @ID@_real32_1(model, kind, name, to, status)
    class(@ID@_trainer), intent(inout) :: model
    integer(c_int), intent(in) :: kind
    character(*), intent(in) :: name
    real(c_float), pointer, intent(out) :: to(:)
    integer, intent(out), optional :: status
    type(c_ptr) :: address
    integer(c_int64_t), allocatable :: shape(:)
    nullify (to)
    call @ID@_locate(model, kind, name, [amos_f32], 1, address, shape, status)
    if (c_associated(address)) call c_f_pointer(address, to, shape)
  end subroutine

  subroutine @ID@_real32_2(model, kind, name, to, status)
    class(@ID@_trainer), intent(inout) :: model
    integer(c_int), intent(in) :: kind
    character(*), intent(in) :: name
    real(c_float), pointer, intent(out) :: to(:,:)
    integer, intent(out), optional :: status
    type(c_ptr) :: address
    integer(c_int64_t), allocatable :: shape(:)
    nullify (to)
    call @ID@_locate(model, kind, name, [amos_f32], 2, address, shape, status)
    if (c_associated(address)) call c_f_pointer(address, to, shape)
  end subroutine

  subroutine @ID@_real32_3(model, kind, name, to, status)
    class(@ID@_trainer), intent(inout) :: model
    integer(c_int), intent(in) :: kind
    character(*), intent(in) :: name
    real(c_float), pointer, intent(out) :: to(:,:,:)
    integer, intent(out), optional :: status
    type(c_ptr) :: address
    integer(c_int64_t), allocatable :: shape(:)
    nullify (to)
    call @ID@_locate(model, kind, name, [amos_f32], 3, address, shape, status)
    if (c_associated(address)) call c_f_pointer(address, to, shape)
  end subroutine

  subroutine @ID@_real32_4(model, kind, name, to, status)
    class(@ID@_trainer), intent(inout) :: model
    integer(c_int), intent(in) :: kind
    character(*), intent(in) :: name
    real(c_float), pointer, intent(out) :: to(:,:,:,:)
    integer, intent(out), optional :: status
    type(c_ptr) :: address
    integer(c_int64_t), allocatable :: shape(:)
    nullify (to)
    call @ID@_locate(model, kind, name, [amos_f32], 4, address, shape, status)
    if (c_associated(address)) call c_f_pointer(address, to, shape)
  end subroutine

  subroutine @ID@_real64_1(model, kind, name, to, status)
    class(@ID@_trainer), intent(inout) :: model
    integer(c_int), intent(in) :: kind
    character(*), intent(in) :: name
    real(c_double), pointer, intent(out) :: to(:)
    integer, intent(out), optional :: status
    type(c_ptr) :: address
    integer(c_int64_t), allocatable :: shape(:)
    nullify (to)
    call @ID@_locate(model, kind, name, [amos_f64], 1, address, shape, status)
    if (c_associated(address)) call c_f_pointer(address, to, shape)
  end subroutine

  subroutine @ID@_real64_2(model, kind, name, to, status)
    class(@ID@_trainer), intent(inout) :: model
    integer(c_int), intent(in) :: kind
    character(*), intent(in) :: name
    real(c_double), pointer, intent(out) :: to(:,:)
    integer, intent(out), optional :: status
    type(c_ptr) :: address
    integer(c_int64_t), allocatable :: shape(:)
    nullify (to)
    call @ID@_locate(model, kind, name, [amos_f64], 2, address, shape, status)
    if (c_associated(address)) call c_f_pointer(address, to, shape)
  end subroutine

  subroutine @ID@_int64_1(model, kind, name, to, status)
    class(@ID@_trainer), intent(inout) :: model
    integer(c_int), intent(in) :: kind
    character(*), intent(in) :: name
    integer(c_int64_t), pointer, intent(out) :: to(:)
    integer, intent(out), optional :: status
    type(c_ptr) :: address
    integer(c_int64_t), allocatable :: shape(:)
    nullify (to)
    call @ID@_locate(model, kind, name, [amos_i64], 1, address, shape, status)
    if (c_associated(address)) call c_f_pointer(address, to, shape)
  end subroutine

  subroutine @ID@_int64_2(model, kind, name, to, status)
    class(@ID@_trainer), intent(inout) :: model
    integer(c_int), intent(in) :: kind
    character(*), intent(in) :: name
    integer(c_int64_t), pointer, intent(out) :: to(:,:)
    integer, intent(out), optional :: status
    type(c_ptr) :: address
    integer(c_int64_t), allocatable :: shape(:)
    nullify (to)
    call @ID@_locate(model, kind, name, [amos_i64], 2, address, shape, status)
    if (c_associated(address)) call c_f_pointer(address, to, shape)
  end subroutine

  subroutine @ID@_int32_1(model, kind, name, to, status)
    class(@ID@_trainer), intent(inout) :: model
    integer(c_int), intent(in) :: kind
    character(*), intent(in) :: name
    integer(c_int32_t), pointer, intent(out) :: to(:)
    integer, intent(out), optional :: status
    type(c_ptr) :: address
    integer(c_int64_t), allocatable :: shape(:)
    nullify (to)
    call @ID@_locate(model, kind, name, [amos_i32], 1, address, shape, status)
    if (c_associated(address)) call c_f_pointer(address, to, shape)
  end subroutine

  subroutine @ID@_int32_2(model, kind, name, to, status)
    class(@ID@_trainer), intent(inout) :: model
    integer(c_int), intent(in) :: kind
    character(*), intent(in) :: name
    integer(c_int32_t), pointer, intent(out) :: to(:,:)
    integer, intent(out), optional :: status
    type(c_ptr) :: address
    integer(c_int64_t), allocatable :: shape(:)
    nullify (to)
    call @ID@_locate(model, kind, name, [amos_i32], 2, address, shape, status)
    if (c_associated(address)) call c_f_pointer(address, to, shape)
  end subroutine

  subroutine @ID@_int8_1(model, kind, name, to, status)
    class(@ID@_trainer), intent(inout) :: model
    integer(c_int), intent(in) :: kind
    character(*), intent(in) :: name
    integer(c_int8_t), pointer, intent(out) :: to(:)
    integer, intent(out), optional :: status
    type(c_ptr) :: address
    integer(c_int64_t), allocatable :: shape(:)
    nullify (to)
    call @ID@_locate(model, kind, name, [amos_i8, amos_u8, amos_bool], 1, address, shape, status)
    if (c_associated(address)) call c_f_pointer(address, to, shape)
  end subroutine

end module
